"""Folders and lists of images: each layout is read alike, in one order everywhere, and says what it leaves out."""

import json
import os
import random
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from record_files import write

from tcnaps.config.settings import Folder
from tcnaps.data.image_source import DatasetError
from tcnaps.data.listing import ImageFile, natural_key, read_file
from tcnaps.data.readers.folders import cut, open_folder, read_list


@pytest.fixture
def tree(root):
    """Makes files below a folder of the dataset, and returns the folder."""
    return partial(write, root / "pets")


def listing_of(root, **options):
    return open_folder("pets", Folder(source="folder", domain="in", path=str(root), **options)).listing()


def listed(root, **options):
    """The paths of all images within the dataset's folder, by split and class."""
    return {
        split: {name: [os.path.relpath(image.path, root) for image in images] for name, images in classes.items()}
        for split, classes in listing_of(root, **options).splits.items()
    }


def test_split_folders(tree):
    root = tree("train/cat/1.jpg", "train/cat/2.PNG", "train/dog/1.jpeg", "val/cow/1.gif", "test/train/1.bmp")
    assert listed(root) == {
        "train": {"cat": ["train/cat/1.jpg", "train/cat/2.PNG"], "dog": ["train/dog/1.jpeg"]},
        "valid": {"cow": ["val/cow/1.gif"]},
        "test": {"train": ["test/train/1.bmp"]},  # a class of CIFAR-100
    }
    listing = listing_of(root)
    assert not listing.superclasses and not listing.spans
    image = listing.splits["valid"]["cow"][0]
    assert image == ImageFile(str(root / "val/cow/1.gif")) and read_file(image) == b"x"


def test_a_class_called_train_beside_others_is_a_class(tree):
    root = tree("train/1.jpg", "tractor/1.jpg", "truck/1.jpg")
    assert set(listed(root, fractions=(0.0, 0.0, 1.0))["test"]) == {"tractor", "train", "truck"}


@pytest.mark.parametrize("layout", ["{}/{}.jpg", "train/{}/{}.jpg"])
def test_a_split_file(tree, tmp_path, layout):
    root = tree(*(layout.format(name, k) for name in ("cat", "dog", "emu", "fox") for k in range(2)))
    (tmp_path / "splits.csv").write_text("class,split\ndog,train\ncat,train\nemu,test\n")
    (note,) = listing_of(root, splits="splits.csv").notes
    assert "splits.csv" in note and "'fox'" in note
    assert listed(root, splits="splits.csv") == {
        "train": {name: [layout.format(name, k) for k in range(2)] for name in ("cat", "dog")},
        "test": {"emu": [layout.format("emu", k) for k in range(2)]},
    }


def test_split_files_and_fractions_put_the_folders_of_a_class_together(tree, tmp_path):
    root = tree("train/a/2.jpg", "train/b/1.jpg", "test/a/1.jpg", "test/b/1.jpg", "val/c/1.jpg", "train/a/10.jpg")
    (tmp_path / "splits.json").write_text('{"train": ["a"], "test": ["b", "c"]}')
    expected = {
        "train": {"a": ["train/a/2.jpg", "train/a/10.jpg", "test/a/1.jpg"]},
        "test": {"b": ["train/b/1.jpg", "test/b/1.jpg"], "c": ["val/c/1.jpg"]},
    }
    assert listed(root, splits="splits.json") == expected
    assert listed(root, fractions=(0.0, 0.0, 1.0)) == {"test": {**expected["train"], **expected["test"]}}


def test_superclasses(tree, tmp_path):
    letters = ("train/Greek/alpha", "train/Greek/beta", "train/Latin/a", "train/Latin/b", "test/Tifinagh/ya")
    root = tree(*(f"{path}/{k}.png" for path in letters for k in range(2)))
    listing = listing_of(root, superclasses=True)
    assert list(listing.splits["train"]) == ["Greek/alpha", "Greek/beta", "Latin/a", "Latin/b"]
    assert listing.superclasses == {path.partition("/")[2]: path.split("/")[1] for path in letters}
    (tmp_path / "splits.csv").write_text("class,split\nGreek,test\nLatin/b,train\nTifinagh/ya,train\n")
    splits = listing_of(root, superclasses=True, splits="splits.csv").splits
    assert list(splits["train"]) == ["Latin/b", "Tifinagh/ya"] and list(splits["test"]) == ["Greek/alpha", "Greek/beta"]
    (tmp_path / "files.csv").write_text("file,class,split\ntrain/Greek/beta/0.png,Greek/beta,test\n")
    assert listing_of(root, superclasses=True, splits="files.csv").superclasses == {"Greek/beta": "Greek"}


def test_fractions_keep_superclasses_whole(tree):
    root = tree(*(f"{group}/{name}/1.png" for group in "ABCDEFGHIJ" for name in "xyz"))
    splits = listing_of(root, superclasses=True, fractions=(0.6, 0.2, 0.2)).splits
    groups = {split: {name[0] for name in classes} for split, classes in splits.items()}
    assert {split: len(names) for split, names in groups.items()} == {"train": 6, "valid": 2, "test": 2}
    assert all(len(classes) == 3 * len(groups[split]) for split, classes in splits.items())
    assert len(set().union(*groups.values())) == 10


@given(st.sets(st.text(alphabet="abcdefgh", min_size=1), min_size=1, max_size=30), st.permutations([0.5, 0.3, 0.2]))
def test_cutting_into_fractions(names, fractions):
    splits = cut(names, tuple(fractions))
    assert splits.keys() == names
    for split, fraction in zip(("train", "valid", "test"), fractions):
        assert abs(list(splits.values()).count(split) - fraction * len(names)) <= 1
    assert cut(sorted(names, reverse=True), tuple(fractions)) == splits
    new = cut([*names, "z"], tuple(fractions))  # a name that is not there yet
    assert sum(new[name] != split for name, split in splits.items()) <= 2  # one across each border


def test_the_order_does_not_depend_on_that_of_the_file_system(tree, monkeypatch):
    root = tree(*(f"test/{name}/{k}.jpg" for name in ("c2", "c10", "C1", "ä") for k in (1, 2, 10, "02", "a")))
    expected = listed(root)
    assert list(expected["test"]) == ["C1", "c2", "c10", "ä"]
    assert [Path(path).stem for path in expected["test"]["ä"]] == ["1", "02", "2", "10", "a"]
    walk, shuffle = os.walk, random.Random(0).shuffle

    def shuffled(*arguments, **options):
        for place, folders, files in walk(*arguments, **options):
            shuffle(folders), shuffle(files)
            yield place, folders, files

    monkeypatch.setattr(os, "walk", shuffled)
    assert listed(root) == expected


def test_other_files_are_counted_and_leftovers_are_not(tree):
    image, counted = "train/a/1.jpg", ("train/a/notes.txt", "train/a/x.TXT", "train/a/README")
    leftovers = (".hidden.jpg", "Thumbs.db", ".DS_Store", "__MACOSX/._1.jpg", ".cache/2.jpg")
    outside = ("train/.git/a.jpg", "__MACOSX/train/a/1.jpg", "train/__MACOSX/1.jpg", "train/stray.jpg", "cover.png")
    root = tree(image, *counted, *(f"train/a/{name}" for name in leftovers), *outside)
    assert listed(root) == {"train": {"a": [image]}}
    (note,) = listing_of(root).notes
    assert all(f"{root / name}" in note for name in counted)


def test_links_are_followed_but_no_folder_is_entered_twice(tree, tmp_path):
    root = tree("test/a/deep/1.jpg")
    write(tmp_path / "elsewhere", "9.jpg")
    for name, target in (
        ("a/circle", root / "test/a"),
        ("a/linked", tmp_path / "elsewhere"),
        ("a/5.jpg", tmp_path / "elsewhere/9.jpg"),
        ("a/lost.jpg", tmp_path / "nowhere"),
        ("a/self", root / "test/a/self"),
        ("a/twin", root / "test/a/deep"),  # the same images once more
        ("a/up", root / "test"),  # where other classes are
        ("b", tmp_path / "elsewhere"),
    ):
        (root / "test" / name).symlink_to(target)
    names = ("5.jpg", "deep/1.jpg", "linked/9.jpg", "lost.jpg")
    assert listed(root)["test"] == {"a": [f"test/a/{name}" for name in names], "b": ["test/b/9.jpg"]}


@pytest.mark.parametrize(
    "paths, options, message",
    [
        (["a/1.jpg", "b/1.jpg"], {}, "'a', 'b'"),
        (["train/a/1.jpg", "annotations/x.txt"], {}, "annotations"),
        (["val/a/1.jpg", "valid/b/1.jpg"], {"fractions": (1.0, 0.0, 0.0)}, "'val', 'valid'"),
        (["train/a/1.jpg", "test/.x"], {}, "test"),
        (["train/a/1.jpg", "test/a/2.jpg"], {}, "'a'"),
        (["train/a/1.jpg"], {"superclasses": True}, "train/a .*superclasses"),
        (["1.jpg"], {"superclasses": True, "fractions": (1, 0, 0)}, "superclasses"),
        (["train/a/1.jpg", "train/b/1.npy"], {}, "train/b"),
        (["a/1.jpg"], {"fractions": (0.5, 0.2, 0.2)}, "fractions"),
        (["a/1.jpg"], {"fractions": (0.6, 0.2, 0.2), "splits": "x.csv"}, "splits"),
        (["a/1.jpg", "list.json"], {"splits": "pets/list.json"}, "list.json: .*'b'"),
    ],
)
def test_errors(tree, paths, options, message):
    root = tree(*paths)
    if "list.json" in paths:
        (root / "list.json").write_text('{"train": ["b"]}')
    with pytest.raises(DatasetError, match=message):
        listing_of(root, **options)


def test_a_list_s_images_count_once_and_one_in_two_classes_is_named(tree):
    root = tree("1.jpg", "e\u0301/2.jpg", "list.csv")  # é as macOS writes it
    lines = "1.jpg,cat,train\n2.jpg,e\u0301,train\n./1.jpg,cat,train\ne\u0301/2.jpg,e\u0301,train\n"  # each twice
    (root / "list.csv").write_text(f"file,class,split\n{lines}")
    classes = listing_of(root, splits="pets/list.csv").splits["train"]
    assert {label: len(images) for label, images in classes.items()} == {"cat": 1, "é": 1}
    (root / "list.csv").write_text("file,class,split\n1.jpg,cat,train\n1.jpg,dog,train\n")
    with pytest.raises(DatasetError, match="1.jpg is in two classes, cat and dog"):
        listing_of(root, splits="pets/list.csv")


def test_folders_that_cannot_be_read_and_names_that_are_not_utf_8_are_errors(tree, tmp_path):
    (tmp_path / "pets.zip").write_bytes(b"x")
    with pytest.raises(DatasetError, match="pets.zip .*Name a readable folder"):
        listing_of(tmp_path / "pets.zip")
    root = tree("test/a/1.jpg")
    os.rename(os.fsencode(root / "test/a/1.jpg"), os.fsencode(root / "test/a") + b"/k\xf6nig.jpg")
    with pytest.raises(DatasetError, match="test/a: .*xf6nig.jpg"):
        listing_of(root)


WNIDS = {"train": ("n01532829", "n01558993"), "val": ("n01855672",), "test": ("n01930112", "n01981276")}
ALL = [wnid for wnids in WNIDS.values() for wnid in wnids]


def names(wnid):
    """ImageNet's own numbers are neither dense nor in plain order of their names."""
    return [f"{wnid}_{number}.JPEG" for number in (3, 26, 105, 20000)]


def expected(place):
    """The files of every class at their places, by split."""
    splits = {"valid" if split == "val" else split: wnids for split, wnids in WNIDS.items()}
    return {s: {w: [place.format(file=n, wnid=w) for n in names(w)] for w in wnids} for s, wnids in splits.items()}


def write_lists(folder, line, header=""):
    folder.mkdir(exist_ok=True)
    for split, wnids in WNIDS.items():
        (folder / f"{split}.csv").write_text(header + "".join(line(wnid) for wnid in wnids))
    return str(folder)


@pytest.mark.parametrize("place", ["{file}", "{wnid}/{file}"])
def test_mini_lists_and_their_images(tmp_path, place):
    images = tmp_path / "images"
    lists = write_lists(tmp_path, lambda wnid: "".join(f"{n},{wnid}\n" for n in names(wnid)), "filename,label\n")
    for wnid in ALL:  # and one that isn't listed
        write(images, *(place.format(file=file, wnid=wnid) for file in [*names(wnid), f"{wnid}_1.JPEG"]))
    assert listed(images, splits=lists) == expected(place)
    (images / place.format(file=names(ALL[0])[1], wnid=ALL[0])).unlink()
    with pytest.raises(DatasetError, match=f"{names(ALL[0])[1]}"):
        listing_of(images, splits=lists)


@pytest.mark.parametrize("header", ["", "wnid,category\n"])
def test_tiered_from_imagenet_and_class_lists(tmp_path, header):
    write(tmp_path / "imagenet", "readme.txt", *(f"{wnid}/{n}" for wnid in [*ALL, "n15075141"] for n in names(wnid)))
    lists = write_lists(tmp_path / "lists", lambda wnid: f"{wnid},n00020090\n", header)
    assert listed(tmp_path / "imagenet", splits=lists) == expected("{wnid}/{file}")


ANIMALS = {"train": ["cat", "dog"], "valid": ["cow"], "test": ["emu", "fox"]}
LINES = [(name, split) for split, names in ANIMALS.items() for name in names]


def list_files(folder, files):
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / name if len(files) == 1 else folder


def splits_of(path):
    classes = {label: split for label, split, _ in read_list(path)}
    return {split: [label for label in classes if classes[label] == split] for split in ANIMALS}


def per_split(text):
    return {f"{'val' if split == 'valid' else split}.csv": text(names) for split, names in ANIMALS.items()}


@pytest.mark.parametrize(
    "files",
    [
        {"a.csv": "class,split\n" + "".join(f"{name},{split}\n" for name, split in LINES)},
        {"a.csv": "Split,Class\r\n" + "".join(f"{split.upper()},{name}\r\n" for name, split in LINES)},
        {"a.csv": "\ufeffclass,split\n" + "".join(f'"{n}", {s.replace("valid", "val")}\n\n' for n, s in LINES)},
        {"a.csv": "filename,label,split\n" + "".join(f"{n}{k}.jpg,{n},{s}\n" for n, s in LINES for k in range(3))},
        {"a.json": json.dumps(ANIMALS)},
        per_split(lambda names: "class\n" + "\n".join(names)),
        per_split(lambda names: "filename,label\n" + "\n".join(f"{name}1.jpg,{name}" for name in names)),
    ],
)
def test_layouts_are_read_alike(tmp_path, files):
    assert splits_of(list_files(tmp_path, files)) == ANIMALS


def test_a_list_without_a_header_is_of_imagenet_s_classes(tmp_path):
    path = list_files(tmp_path, {"test.csv": "n00000001,n00000009\nn00000002,n00000009\n"})
    assert splits_of(path)["test"] == ["n00000001", "n00000002"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", ""),
        ("a.csv", "class,split\n"),
        ("a.csv", "class,split\ncat,train\ncat,test\n"),
        ("a.json", '{"train": ["Ko\\u0308ln "], "test": ["K\\u00f6ln"]}'),  # two ways to write ö
        ("a.csv", "class,split\ncat,train\ncow,dev\n"),
        ("a.csv", "class\ncat\n"),
        ("a.csv", "class,split\ncat,train\n,test\n"),
        ("a.csv", "class,split\ncat,train\ncow,test,x\n"),
        ("a.csv", "cat,train\ncow,test\n"),
        ("a.csv", b"class,split\nk\xf6nig,train\n"),
        ("a.json", '["cat"]'),
    ],
)
def test_a_list_that_cannot_be_used_is_named(tmp_path, name, content):
    with pytest.raises(DatasetError, match=name):
        read_list(list_files(tmp_path, {name: content}))
    with pytest.raises(DatasetError, match="none.csv"):
        read_list(tmp_path / "none.csv")


def test_natural_order():
    names = ["image10", "image9", "image09", "image", "Image1", "a2b10", "a2b9", "ä", "10", "9"]
    expected = ["9", "10", "Image1", "a2b9", "a2b10", "image", "image09", "image9", "image10", "ä"]
    assert sorted(names, key=natural_key) == expected
