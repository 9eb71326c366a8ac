"""Lists of classes and images: each layout is read alike, and what is wrong is named."""

import json

import pytest

from tcnaps.data.image_source import DatasetError
from tcnaps.data.listing import Row
from tcnaps.data.readers.csv_lists import choose, listing_of, read_list, with_images
from tcnaps.data.readers.shared import natural_key

ANIMALS = {"train": ["cat", "dog"], "valid": ["cow"], "test": ["emu", "fox"]}
LINES = [(name, split) for split, names in ANIMALS.items() for name in names]


def write(folder, files):
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / name if len(files) == 1 else folder


def splits_of(path):
    classes = read_list(path).classes
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
    assert splits_of(write(tmp_path, files)) == ANIMALS


def test_a_list_without_a_header_is_of_imagenet_s_classes(tmp_path):
    path = write(tmp_path, {"test.csv": "n00000001,n00000009\nn00000002,n00000009\n"})
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
        read_list(write(tmp_path, {name: content}))
    with pytest.raises(DatasetError, match="none.csv"):
        read_list(tmp_path / "none.csv")


def test_listed_classes_are_chosen_and_a_superclass_stands_for_its_classes():
    rows = [Row(label, "", k) for k, label in enumerate(["Greek/b", "Greek/a", "Latin/a", "Runic/a"])]
    chosen, notes = choose(rows, {"Greek": "train", "Latin/a": "test"}, "list.csv")
    listing = listing_of(chosen, "list.csv", grouped=True)
    assert listing.splits == {"train": {"Greek/a": [1], "Greek/b": [0]}, "test": {"Latin/a": [2]}}
    assert "'Runic/a'" in notes[0] and len(notes) == 1
    with pytest.raises(DatasetError, match="list.csv: .*'Greek/c'"):
        choose(rows, {"Greek/c": "train"}, "list.csv")
    with pytest.raises(DatasetError, match="'a' .*train and test"):
        listing_of([Row("a", "train", 0), Row("a", "test", 1)], "x")


@pytest.mark.parametrize("place", ["{1}", "{0}/{1}"])
def test_listed_images_lie_in_one_folder_or_in_those_of_their_classes(tmp_path, place):
    (tmp_path / "list.csv").write_text("file,class,split\n10.jpg,b,train\n9.jpg,b,train\n1.jpg,a,test\n")
    for name, file in (("b", "9.jpg"), ("b", "10.jpg"), ("a", "1.jpg"), ("a", "other.jpg")):
        path = tmp_path / place.format(name, file)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    rows = with_images(read_list(tmp_path / "list.csv"), tmp_path, "list.csv")
    splits = listing_of(rows, "list.csv").splits
    paths = [image.path for split in ("train", "test") for of_class in splits[split].values() for image in of_class]
    wanted = [place.format(name, file) for name, file in (("b", "9.jpg"), ("b", "10.jpg"), ("a", "1.jpg"))]
    assert paths == [str(tmp_path / path) for path in wanted]
    (tmp_path / place.format("b", "9.jpg")).unlink()
    with pytest.raises(DatasetError, match="list.csv: .*'9.jpg'"):
        with_images(read_list(tmp_path / "list.csv"), tmp_path, "list.csv")


def test_natural_order():
    names = ["image10", "image9", "image09", "image", "Image1", "a2b10", "a2b9", "ä", "10", "9"]
    expected = ["9", "10", "Image1", "a2b9", "a2b10", "image", "image09", "image9", "image10", "ä"]
    assert sorted(names, key=natural_key) == expected
