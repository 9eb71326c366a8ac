"""Lists of classes and images: each layout is read alike, and what is wrong is named."""

import json

import pytest
from hypothesis import given, strategies as st

from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.readers.csv_lists import listed_images, match_classes, read_list, splits_of
from tcnaps.datasets.readers.shared import natural_key

ANIMALS = {"train": ("cat", "dog"), "valid": ("cow",), "test": ("emu", "fox")}
JSON = json.dumps(ANIMALS)
LINES = [(name, split) for split, names in ANIMALS.items() for name in names]


@pytest.fixture
def read(tmp_path):
    """Reads the splits of a file with the given content."""

    def read(content, **options):
        (tmp_path / "splits.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
        return splits_of(read_list(tmp_path / "splits.csv", **options))

    return read


@pytest.mark.parametrize(
    "text",
    [
        "class,split\n" + "".join(f"{name},{split}\n" for name, split in LINES),
        "Split,Class\r\n" + "".join(f"{split.upper()},{name}\r\n" for name, split in LINES),
        "\ufeffclass,split\n" + "".join(f'"{name}", {split.replace("valid", "val")}\n\n' for name, split in LINES),
        "filename,label,split\n"
        + "".join(f"{name}{k}.jpg,{name},{split}\n" for name, split in LINES for k in range(3)),
        JSON,
    ],
)
def test_layouts_of_one_file_are_read_alike(read, text):
    splits = read(text)
    assert list(splits) == ["train", "valid", "test"] and splits == ANIMALS


@pytest.mark.parametrize(("line", "header"), [("{0}", "class\n"), ("{0}1.jpg,{0}", "filename,label\n")])
def test_a_folder_of_lists_is_read_as_one_file(tmp_path, line, header):
    for split, names in ANIMALS.items():
        file = tmp_path / f"{'val' if split == 'valid' else split}.csv"
        file.write_text(header + "\n".join(map(line.format, names)))
    (tmp_path / "meta.csv").write_text("of no split")
    assert splits_of(read_list(tmp_path)) == ANIMALS


def test_lists_of_tiered_imagenet_have_no_header_and_a_category(tmp_path):
    (tmp_path / "train.csv").write_text("n03314780,n00020090\nn07565083,n00020090\n")
    (tmp_path / "test.csv").write_text("wnid,category\nn01440764,n01473806\n")
    assert splits_of(read_list(tmp_path)) == {"train": ("n03314780", "n07565083"), "test": ("n01440764",)}


def test_names_are_kept_and_splits_without_classes_left_out(read):
    assert read('{"train": [], "valid": [], "test": [0, 1, 2]}') == {"test": ("0", "1", "2")}
    names = ("F-16A/B", "polka-dotted", "Köln", "0039.Amanita phalloides ", "nan", "train")
    assert read(json.dumps({"test": names})) == {"test": names}
    assert read("class,split\nNA,test\n007,test\n") == {"test": ("NA", "007")}


def test_a_list_without_splits_may_be_of_one_split(read):
    assert read("filename,label\n1.jpg,cat\n2.jpg,ape\n", otherwise="test") == {"test": ("cat", "ape")}
    assert read("class,split\ncat,train\nape,test\n", otherwise="test") == {"train": ("cat",), "test": ("ape",)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not a CSV"),
        ("class,split\n", "lists no class"),
        ('{"train": [], "test": []}', "lists no class"),
        ("class,split\ncat,train\ncat,test\n", "'cat' is in two splits, train and test"),
        ('{"train": ["Ko\\u0308ln"], "test": ["K\\u00f6ln"]}', "is in two splits"),  # two ways to write ö
        ("filename,class,split\n1.jpg,a,train\n1.jpg,b,train\n", "'1.jpg' is listed twice"),
        ("class,split\ncat,train\ncow,dev\n", "no split 'dev'"),
        ("class,split\ncat,train\n,test\n", "in some lines a field is missing"),
        ("class,split\ncat,train\ncow,test,x\n", "not a CSV"),
        ("class\ncat\n", "in some lines a field is missing"),
        ("cat,train\ncow,test\n", r"first line \(cat, train\) is not a known header"),
        (b"class,split\nk\xf6nig,train\n", "not UTF-8"),
        ('["cat"]', "holds no object"),
        ('{"train": "cat"}', "must be a list"),
        ('{"train": ' + "[" * 100_000, "not JSON"),  # deeper than Python's stack
    ],
)
def test_errors_of_one_file(read, content, message):
    with pytest.raises(DatasetError, match=f"splits.csv.*{message}|{message}.*splits.csv"):
        read(content)


@given(st.binary(max_size=60))
def test_bytes_of_any_kind_are_a_list_or_an_error(tmp_path_factory, content):
    folder = tmp_path_factory.getbasetemp()
    (folder / "any").write_bytes(content)
    try:
        assert len(read_list(folder / "any"))
    except DatasetError as error:
        assert "any" in str(error)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no train.csv, val.csv or test.csv"),
        ({"train.csv/x": ""}, "train.csv can't be read .Is a directory"),
        ({"train.csv": "file,class\n1.jpg,a\n1.jpg,b"}, "'1.jpg' is listed twice"),
        ({"train.csv": "class\na", "test.csv": "class\na"}, "'a' is in two splits"),
    ],
)
def test_errors_of_a_folder_of_lists(tmp_path, files, message):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(DatasetError, match=message):
        read_list(tmp_path)


def test_a_listed_superclass_stands_for_its_classes():
    above = {"Greek/alpha": "Greek", "Greek/beta": "Greek", "Latin/a": "Latin"}
    assert match_classes({"train": ["Greek"], "test": ["Latin/a"]}, above, "x", above)[0] == {
        "train": ("Greek/alpha", "Greek/beta"),
        "test": ("Latin/a",),
    }
    with pytest.raises(DatasetError, match="'Greek/beta' is in two splits"):
        match_classes({"train": ["Greek"], "test": ["Greek/beta"]}, above, "x", above)


def test_a_listed_class_that_is_not_there_is_named():
    with pytest.raises(DatasetError, match="1 of the classes of 'test' .* 'zebar'; it has 'ape', 'Zebra'"):
        match_classes({"test": ["ape", "zebar"]}, ["ape", "Zebra"], "animals.csv")


def test_natural_order():
    names = ["image10", "image9", "image09", "image", "Image1", "a2b10", "a2b9", "ä", "10", "9"]
    expected = ["9", "10", "Image1", "a2b9", "a2b10", "image", "image09", "image9", "image10", "ä"]
    assert sorted(names, key=natural_key) == expected
    assert natural_key("9" * 5000) < natural_key("1" + "0" * 5000)  # more digits than int() takes


@pytest.mark.parametrize("place", ["{1}", "{0}/{1}"])
def test_listed_images_lie_in_one_folder_or_in_those_of_their_classes(tmp_path, place):
    (tmp_path / "list.csv").write_text("file,class,split\n10.jpg,b,train\n9.jpg,b,train\n1.jpg,a,test\n")
    for name, file in (("b", "9.jpg"), ("b", "10.jpg"), ("a", "1.jpg"), ("a", "other.jpg")):
        path = tmp_path / place.format(name, file)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    splits = listed_images(tmp_path, read_list(tmp_path / "list.csv"), "list.csv")
    paths = {split: [image.path for of in classes.values() for image in of] for split, classes in splits.items()}
    assert paths == {
        "train": [str(tmp_path / place.format("b", file)) for file in ("9.jpg", "10.jpg")],
        "test": [str(tmp_path / place.format("a", "1.jpg"))],
    }
    (tmp_path / place.format("b", "9.jpg")).unlink()
    with pytest.raises(DatasetError, match="list.csv: of the 2 images listed of 'b', '9.jpg' are neither in"):
        listed_images(tmp_path, read_list(tmp_path / "list.csv"), "list.csv")
