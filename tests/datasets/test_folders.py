"""Folders of images: each layout lists the same images, in one order everywhere, and says what it leaves out."""

import os
import random
import tarfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from PIL import Image
from record_files import write

from tcnaps.config.settings import Folder
from tcnaps.datasets import decoding
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import ImageFile
from tcnaps.datasets.readers.folders import EXTENSIONS, cut, open_folder

LETTERS = {"train": {"Greek": ("alpha", "beta"), "Latin": ("a", "b", "c")}, "test": {"Tifinagh": ("ya",)}}


@pytest.fixture
def tree(tmp_path):
    """Makes files below a folder of the dataset, and returns the folder."""
    return partial(write, tmp_path / "pets")


def source(root, **options):
    dataset = Folder(source="folder", domain="in", path=str(root), **options)
    return open_folder("pets", dataset, root.parent)


def listed(root, **options):
    """The paths of all images within the dataset's folder, by split and class."""
    splits = source(root, **options).listing().splits
    return {
        split: {
            name: [os.path.relpath(image.path, root) for image in images]
            for name, images in zip(found.class_names, found.images)
        }
        for split, found in splits.items()
    }


def notes(root, **options):
    """What the user is told of the dataset."""
    return source(root, **options).listing().notes


# Layouts


def test_split_folders(tree):
    root = tree("train/cat/1.jpg", "train/cat/2.PNG", "train/dog/1.jpeg", "val/cow/1.gif", "test/emu/1.bmp")
    expected = {
        "train": {"cat": ["train/cat/1.jpg", "train/cat/2.PNG"], "dog": ["train/dog/1.jpeg"]},
        "valid": {"cow": ["val/cow/1.gif"]},
        "test": {"emu": ["test/emu/1.bmp"]},
    }
    assert listed(root) == expected
    listing = source(root).listing()
    assert all(found.superclasses is None and found.spans is None for found in listing.splits.values())
    assert list(listing.splits) == ["train", "valid", "test"]
    image = listing.splits["valid"].images[0][0]
    assert image == ImageFile(str(root / "val/cow/1.gif")) and listing.read(image) == image.path


@pytest.mark.parametrize("layout", ["{}/{}.jpg", "train/{}/{}.jpg"])
def test_a_split_file(tree, tmp_path, layout):
    root = tree(*(layout.format(name, k) for name in ("cat", "dog", "emu", "fox") for k in range(2)))
    (tmp_path / "splits.csv").write_text("class,split\ndog,train\ncat,train\nemu,test\n")
    assert notes(root, splits="splits.csv") == ("classes left out, because splits.csv does not list them: 'fox'",)
    assert listed(root, splits="splits.csv") == {
        "train": {name: [layout.format(name, k) for k in range(2)] for name in ("cat", "dog")},
        "test": {"emu": [layout.format("emu", k) for k in range(2)]},
    }


def test_a_list_of_images(tree, tmp_path):
    root = tree("a/2.jpg", "a/10.jpg", "a/3.jpg", "b/1.jpg", "c/1.jpg")
    (tmp_path / "splits.csv").write_text("file,class,split\na/10.jpg,x,train\nb/1.jpg,x,train\na/2.jpg,y,test\n")
    assert listed(root, splits="splits.csv") == {"train": {"x": ["a/10.jpg", "b/1.jpg"]}, "test": {"y": ["a/2.jpg"]}}


def test_split_files_and_fractions_put_the_folders_of_a_class_together(tree, tmp_path):
    root = tree("train/a/2.jpg", "train/b/1.jpg", "test/a/1.jpg", "test/b/1.jpg", "val/c/1.jpg", "train/a/10.jpg")
    (tmp_path / "splits.json").write_text('{"train": ["a"], "test": ["b", "c"]}')
    expected = {
        "train": {"a": ["train/a/2.jpg", "train/a/10.jpg", "test/a/1.jpg"]},
        "test": {"b": ["train/b/1.jpg", "test/b/1.jpg"], "c": ["val/c/1.jpg"]},
    }
    assert listed(root, splits="splits.json") == expected
    both = listed(root, fractions=(0.0, 0.0, 1.0))
    assert both == {"test": {**expected["train"], **expected["test"]}}


def test_superclasses(tree, tmp_path):
    paths = [
        f"{split}/{group}/{name}/{k}.png"
        for split, groups in LETTERS.items()
        for group, names in groups.items()
        for name in names
        for k in range(2)
    ]
    root = tree(*paths)
    splits = source(root, superclasses=True).listing().splits
    assert splits["train"].class_names == ("Greek/alpha", "Greek/beta", "Latin/a", "Latin/b", "Latin/c")
    assert splits["train"].superclasses == ("Greek", "Greek", "Latin", "Latin", "Latin")
    assert splits["test"].class_names == ("Tifinagh/ya",) and splits["test"].superclasses == ("Tifinagh",)
    (tmp_path / "splits.csv").write_text("class,split\nGreek,test\nLatin/b,train\nTifinagh/ya,train\n")
    splits = source(root, superclasses=True, splits="splits.csv").listing().splits
    assert splits["train"].class_names == ("Latin/b", "Tifinagh/ya")
    assert splits["train"].superclasses == ("Latin", "Tifinagh")
    assert splits["test"].class_names == ("Greek/alpha", "Greek/beta")


def test_fractions_keep_superclasses_whole(tree):
    root = tree(*(f"{group}/{name}/1.png" for group in "ABCDEFGHIJ" for name in "xyz"))
    splits = source(root, superclasses=True, fractions=(0.6, 0.2, 0.2)).listing().splits
    groups = {split: set(found.superclasses) for split, found in splits.items()}
    assert {split: len(found) for split, found in groups.items()} == {"train": 6, "valid": 2, "test": 2}
    assert len(set().union(*groups.values())) == 10
    assert all(len(found.class_names) == 3 * len(groups[split]) for split, found in splits.items())


# Order


class Entries:
    """What `os.scandir` returns: an iterator, and a context."""

    def __init__(self, entries):
        self._next = iter(entries).__next__

    def __iter__(self):
        return self

    def __next__(self):
        return self._next()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def test_the_order_does_not_depend_on_that_of_the_file_system(tree, monkeypatch):
    root = tree(*(f"test/{name}/{k}.jpg" for name in ("c2", "c10", "C1", "ä") for k in (1, 2, 10, "02", "a")))
    expected = listed(root)
    assert list(expected["test"]) == ["C1", "c2", "c10", "ä"]
    assert [Path(path).stem for path in expected["test"]["ä"]] == ["1", "02", "2", "10", "a"]
    scandir, shuffle = os.scandir, random.Random(0).shuffle

    def shuffled(folder):
        with scandir(folder) as found:
            entries = list(found)
        shuffle(entries)
        return Entries(entries)

    monkeypatch.setattr(os, "scandir", shuffled)
    for _ in range(3):
        assert listed(root) == expected


@given(st.sets(st.text(alphabet="abcdefgh", min_size=1), min_size=1, max_size=30), st.permutations([0.5, 0.3, 0.2]))
def test_cutting_into_fractions(names, fractions):
    parts = cut(names, tuple(fractions))
    assert sorted(name for part in parts.values() for name in part) == sorted(names)
    for (_, part), fraction in zip(parts.items(), fractions):
        assert abs(len(part) - fraction * len(names)) <= 1
    assert cut(sorted(names, reverse=True), tuple(fractions)) == parts
    new = cut([*names, "z"], tuple(fractions))  # a name that is not there yet
    moved = sum(name not in new[split] for split, part in parts.items() for name in part)
    assert moved <= 2  # one across each border


# Files that are no images


def test_other_files_are_counted_and_leftovers_are_not(tree):
    root = tree(
        "train/a/1.jpg",
        "train/a/.hidden.jpg",
        "train/a/Thumbs.db",
        "train/a/.DS_Store",
        "train/a/notes.txt",
        "train/a/__MACOSX/._1.jpg",
        "train/a/.cache/2.jpg",
        "train/a/x.TXT",
        "train/a/README",
        "train/.git/a.jpg",
        "__MACOSX/train/a/1.jpg",
        "train/__MACOSX/1.jpg",
        "train/stray.jpg",
        "train/list.csv",
        "cover.png",
    )
    assert listed(root) == {"train": {"a": ["train/a/1.jpg"]}}
    assert notes(root) == ("files left out, because their names are not those of images: 2 .txt, 1 without extension",)


def test_every_extension_is_of_a_format_that_is_decoded():
    Image.init()
    formats = {extension: name for extension, name in Image.EXTENSION.items() if name in decoding.FORMATS}
    assert EXTENSIONS <= formats.keys() | {".avif"}  # a Pillow without AVIF says so when it meets one
    assert {"JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000"} <= {formats.get(e) for e in EXTENSIONS}


def test_links_are_followed_but_no_folder_is_entered_twice(tree, tmp_path):
    root = tree("test/a/deep/1.jpg")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/9.jpg").write_bytes(b"x")
    (root / "test/a/circle").symlink_to(root / "test/a")
    (root / "test/a/linked").symlink_to(tmp_path / "elsewhere")
    (root / "test/a/5.jpg").symlink_to(tmp_path / "elsewhere/9.jpg")
    (root / "test/a/lost.jpg").symlink_to(tmp_path / "nowhere")
    (root / "test/a/self.jpg").symlink_to(root / "test/a/self.jpg")
    (root / "test/a/self").symlink_to(root / "test/a/self")
    (root / "test/b").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(root / "test/a/pipe.jpg")
    (root / "test/a/device.jpg").symlink_to("/dev/zero")
    names = ("5.jpg", "deep/1.jpg", "device.jpg", "linked/9.jpg", "lost.jpg", "pipe.jpg", "self.jpg")
    assert listed(root)["test"] == {"a": [f"test/a/{name}" for name in names], "b": ["test/b/9.jpg"]}


# Sources and stamps


# Errors


@pytest.mark.parametrize(
    "paths, options, message",
    [
        (["a/1.jpg", "b/1.jpg"], {}, "holds the folders 'a', 'b', and no folder train, val or test.*fractions"),
        (["train/a/1.jpg", "annotations/x.txt"], {}, "folders of splits and others beside.*'annotations'"),
        (["train/a/1.jpg", "annotations/x.txt"], {"fractions": (1.0, 0.0, 0.0)}, "and others beside them"),
        (["val/a/1.jpg", "valid/b/1.jpg"], {}, "two of one split: 'val', 'valid'"),
        (["train/a/1.jpg", "test/.x"], {}, "test has no classes: put one folder per class into it"),
        (["train/a/1.jpg", "test/a/2.jpg"], {}, "'a' is in two splits, train and test.*fractions.*split file"),
        (["train/a/1.jpg"], {"superclasses": True}, "train/a is to be a superclass, .*remove the key superclasses"),
        ([".x"], {"fractions": (0.5, 0.2, 0.3)}, "pets has no classes"),
        (
            ["train/a/1.jpg", "train/b/1.npy", "train/b/2.npy", "train/c/.x"],
            {},
            "split 'train': .*train/b has no images.*'.npy': 2",
        ),
        (["a/1.jpg", "b/1.jpg"], {"fractions": (0.8, 0.1, 0.1)}, "fraction 0.1 leaves the split 'valid' without"),
        (["a/1.jpg", "b/1.jpg"], {"splits": "nothing.csv"}, "nothing.csv can't be read"),
    ],
)
def test_errors(tree, paths, options, message):
    root = tree(*paths)
    with pytest.raises(DatasetError, match=f"(?s){message}"):
        source(root, **options).listing()


def test_fractions_that_do_not_add_up_and_two_ways_to_split_are_refused_at_once(tree):
    with pytest.raises(DatasetError, match="'pets': its fractions .* must add up to 1"):
        source(tree("a/1.jpg"), fractions=(0.5, 0.2, 0.2))
    with pytest.raises(DatasetError, match="'pets' has both splits and fractions"):
        source(tree("a/1.jpg"), fractions=(0.6, 0.2, 0.2), splits="x.csv")


def test_a_path_that_is_no_folder_is_an_error(tmp_path):
    (tmp_path / "pets.zip").write_bytes(b"x")
    with pytest.raises(DatasetError, match=r"pets.zip can't be looked through \(Not a directory\)"):
        source(tmp_path / "pets.zip").listing()


def test_names_that_are_not_utf_8_are_errors(tree):
    root = tree("test/a/1.jpg")
    os.rename(os.fsencode(root / "test/a/1.jpg"), os.fsencode(root / "test/a") + b"/k\xf6nig.jpg")
    with pytest.raises(DatasetError, match=r"test/a: the name b'k\\xf6nig.jpg' is not UTF-8. Rename it"):
        source(root).listing()


def test_folders_that_cannot_be_read_are_errors(tree, monkeypatch):
    root = tree("test/a/1.jpg")
    scandir = os.scandir

    def refuse(folder):
        if Path(folder).name == "a":
            raise PermissionError(13, "Permission denied", folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DatasetError, match=r"test/a can't be looked through \(Permission denied\)"):
        source(root).listing()


# Real images


@pytest.fixture(scope="session")
def archives():
    """The folder of real images; not part of the project."""
    folder = Path(os.environ.get("TCNAPS_DATA") or Path(__file__).parents[3] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real images at {folder}: set TCNAPS_DATA to the folder that holds them")
    return folder


def unpack(archive, prefixes, folder):
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name.startswith(prefixes):
                tar.extract(member, folder, filter="data")


def test_omniglot(archives, tmp_path):
    prefixes = ("omniglot/train/Greek/character0", "omniglot/train/Latin/character1", "omniglot/test/Tagalog/")
    unpack(archives / "omniglot.tar", prefixes, tmp_path)
    splits = source(tmp_path / "omniglot", superclasses=True).listing().splits
    assert splits["train"].class_names == (
        *(f"Greek/character0{k}" for k in range(1, 10)),
        *(f"Latin/character{k}" for k in range(10, 20)),
    )
    assert splits["test"].superclasses == ("Tagalog",) * 17
    assert {len(images) for found in splits.values() for images in found.images} == {20}
    pixels = decoding.decode(Path(splits["test"].images[3][7].path), 28, "bilinear")
    assert pixels.shape == (28, 28, 3) and pixels.std() > 10


def test_tiny_imagenet_with_a_list_of_classes(archives, tmp_path):
    names = ("tiny-imagenet/train/n01629819/", "tiny-imagenet/test/n01443537/")
    unpack(archives / "tiny-imagenet.tar", names, tmp_path)
    root = tmp_path / "tiny-imagenet"
    by_folders = source(root).listing().splits
    assert [len(images) for found in by_folders.values() for images in found.images] == [400, 200]
    assert [Path(image.path).name for image in by_folders["train"].images[0][:4]] == [
        f"n01629819_{k}.JPEG" for k in range(4)
    ]
    (tmp_path / "classes.csv").write_text("class,split,words\nn01629819,test,salamander\nn01443537,train,goldfish\n")
    listed_splits = source(root, splits="classes.csv").listing().splits
    assert list(listed_splits["test"].images[0]) == list(by_folders["train"].images[0])
    assert listed_splits["train"].class_names == ("n01443537",)
