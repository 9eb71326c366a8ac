"""Lists of classes and images: each layout is read alike, and what is wrong is named."""

import json

import pytest

from tcnaps.data.image_source import DatasetError
from tcnaps.data.listing import natural_key
from tcnaps.data.readers.folders import read_list

ANIMALS = {"train": ["cat", "dog"], "valid": ["cow"], "test": ["emu", "fox"]}
LINES = [(name, split) for split, names in ANIMALS.items() for name in names]


def write(folder, files):
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


def test_natural_order():
    names = ["image10", "image9", "image09", "image", "Image1", "a2b10", "a2b9", "ä", "10", "9"]
    expected = ["9", "10", "Image1", "a2b9", "a2b10", "image", "image09", "image9", "image10", "ä"]
    assert sorted(names, key=natural_key) == expected
