"""Split files of every layout are read alike, whatever is wrong with one is said, and addresses are fetched once."""

import http.server
import json
import threading
from functools import partial

import pytest
from hypothesis import given, strategies as st

from tcnaps.datasets import DatasetError, downloads
from tcnaps.datasets.names import check_distinct, natural_key, nearest, normal, some
from tcnaps.datasets.split_files import (
    SplitFileError,
    local_path,
    match_classes,
    read_classes,
    read_image_lists,
    read_splits,
    stamp,
)

ANIMALS = {"train": ("cat", "dog"), "valid": ("cow",), "test": ("emu", "fox")}
JSON = json.dumps(ANIMALS)


@pytest.fixture
def read(tmp_path):
    """Reads the splits of a file with the given text."""

    def read(text, name="splits.csv"):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_splits(name, tmp_path)

    return read


@pytest.fixture
def served(tmp_path):
    """A folder, its address on a local server, and the paths that were asked for."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *arguments):
            pass

    folder = tmp_path / "served"
    folder.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


# Layouts


LINES = [(name, split) for split, names in ANIMALS.items() for name in names]


@pytest.mark.parametrize(
    "text",
    [
        "class,split\n" + "".join(f"{name},{split}\n" for name, split in LINES),
        "split,class\n" + "".join(f"{split},{name}\n" for name, split in LINES),
        "Class,Split\r\n" + "".join(f"{name},{split.upper()}\r\n" for name, split in LINES),
        "class,split\n" + "".join(f'"{name}", {split.replace("valid", "val")}\n\n' for name, split in LINES),
        ",label,subset,note\n"
        + "".join(f"{k},{n},{s.replace('valid', 'validation')},\n" for k, (n, s) in enumerate(LINES)),
        "wnid\tsplit\twords\n" + "".join(f"{name}\t{split}\ta, b; c\n" for name, split in LINES),
        "class;split\n" + "".join(f"{name};{split}\n" for name, split in LINES),
        "".join(f"{name},{split}\n" for name, split in LINES),
        "".join(f"{split},{name}\n" for name, split in LINES),
        "\ufeffclass,split\n" + "".join(f"{name},{split}\n" for name, split in reversed(LINES)),
        "filename,label,split\n" + "".join(f"{n}{k}.jpg,{n},{s}\n" for n, s in LINES for k in range(3)),
        JSON,
        "\ufeff " + json.dumps({"test": ["emu", "fox"], "val": ["cow"], "train": ["cat", "dog"]}, indent=2),
    ],
)
def test_layouts_of_one_file_are_read_alike(read, text):
    for name in ("splits.csv", "splits.json", "splits"):  # the content counts, not the name
        splits = read(text, name)
        assert list(splits) == ["train", "valid", "test"]
        assert {split: tuple(sorted(names)) for split, names in splits.items()} == ANIMALS


@pytest.mark.parametrize(
    "line, header",
    [
        (lambda name: f"{name}", "class\n"),
        (lambda name: f"{name}", ""),
        (lambda name: f"{name}1.jpg,{name}", "filename,label\n"),
        (lambda name: f"{name},{name}1.jpg", "class_name,image_name\n"),
    ],
)
def test_a_folder_of_lists_is_read_as_one_file(tmp_path, line, header):
    for split, names in ANIMALS.items():
        file = tmp_path / f"{'val' if split == 'valid' else split}.csv"
        file.write_text(header + "\n".join(map(line, names)))
    (tmp_path / "meta.csv").write_text("of no split")
    assert read_splits(".", tmp_path) == ANIMALS


def test_lists_of_tiered_imagenet_have_no_header_and_a_category(tmp_path):
    (tmp_path / "train.csv").write_text("n03314780,n00020090\nn07565083,n00020090\n")
    (tmp_path / "test.csv").write_text("n01440764,n01473806\n")
    splits = read_splits(str(tmp_path), tmp_path)
    assert splits == {"train": ("n03314780", "n07565083"), "test": ("n01440764",)}
    with_header = "wnid,category\nn03314780,n00020090\nn07565083,n00020090\n"
    (tmp_path / "train.csv").write_text(with_header)
    assert read_splits(str(tmp_path), tmp_path) == splits


def test_splits_without_classes_are_left_out_of_json(read):
    assert read('{"train": [], "valid": [], "test": [0, 1, 2]}') == {"test": ("0", "1", "2")}


def test_names_are_kept_as_they_are(read):
    names = ("F-16A/B", "polka-dotted", "Köln", "0039.Amanita phalloides ", "wine glass", "train")
    assert read(json.dumps({"test": names})) == {"test": names}


def test_image_lists(tmp_path):
    (tmp_path / "train.csv").write_text("filename,label\nb2.jpg,b\na1.jpg,a\nb1.jpg,b\n")
    (tmp_path / "val.csv").write_text("class\nc\n")
    assert read_image_lists(tmp_path) == {"train": {"b": ("b2.jpg", "b1.jpg"), "a": ("a1.jpg",)}, "valid": {"c": ()}}


@pytest.mark.parametrize(
    "text, classes",
    [
        ("filename,label\n1.jpg,cat\n2.jpg,cat\n3.jpg,ape\n", ("cat", "ape")),
        ("n03314780,n00020090\nn07565083,n00020090\n", ("n03314780", "n07565083")),
        ("class,split\ncat,train\nape,test\n", ("ape",)),
        (JSON, ("emu", "fox")),
    ],
)
def test_test_classes(tmp_path, text, classes):
    (tmp_path / "list").write_text(text)
    assert read_classes("list", tmp_path) == classes


# What is wrong with a file


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "is empty"),
        ("class,split\n", "nothing below it"),
        ("class,split\ncat,train\ncat,test\n", "'cat' is in two splits, train and test"),
        ("class,split\ncat,train\ncat,train\n", "line 3: 'cat, train' is there already, in line 2"),
        ("filename,class,split\n1.jpg,a,train\n1.jpg,b,train\n", "line 3: '1.jpg' is there already, in line 2"),
        ("class,split\ncat,train\ncow,dev\n", "line 3: there is no split 'dev'"),
        ("class,split\ncat,train\ncow\n", "line 3: the split is missing"),
        ("class,split\ncat,train\n,test\n", "line 3: the class is missing"),
        ('class,split\n"cat,train\n', "not CSV"),
        ("class\ncat\n", "no column that says of which split"),
        ("cat\ncow\n", "no column that says of which split"),
        ("split,amount\ntrain,3\n", "no column of its header"),
        ("cat,3\ncow,4\n", "no header known here"),
        (b"class,split\nk\xf6nig,train\n", "not UTF-8"),
        ("<!DOCTYPE html><html>", "web page"),
        ("{", "no JSON"),
        ('["cat"]', "doesn't say which classes"),
        ('{"dev": ["cat"]}', "there is no split 'dev'"),
        ('{"train": "cat"}', "must be a list"),
        ('{"train": ["cat", true]}', "must be a list"),
        ('{"train": ["cat"], "train": ["cow"]}', "the key 'train' is there twice"),
        ('{"val": ["cat"], "valid": ["cow"]}', "the split 'valid' is there twice"),
        ('{"train": ["cat", "cow", "cat"]}', "'train', entry 3: 'cat' is there already, in entry 1"),
        ('{"train": ["cat"], "test": ["cat"]}', "'cat' is in two splits"),
        ('{"train": ["Ko\\u0308ln"], "test": ["K\\u00f6ln"]}', "is in two splits"),  # two ways to write ö
        ('{"train": [], "test": []}', "lists no class at all"),
    ],
)
def test_errors_of_one_file(read, text, message):
    with pytest.raises(SplitFileError, match=message) as caught:
        read(text)
    assert "splits.csv" in str(caught.value)


@pytest.mark.parametrize(
    "files, message",
    [
        ({}, "no train.csv, val.csv or test.csv"),
        ({"val.csv": "class\na", "valid.csv": "class\nb"}, "both val.csv and valid.csv"),
        ({"train.csv": "class\na\nb\na"}, "line 4: 'a' is there already, in line 2"),
        ({"train.csv": "file,class\n1.jpg,a\n1.jpg,b"}, "line 3: '1.jpg' is there already, in line 2"),
        ({"train.csv": "class\na", "test.csv": "class\na"}, "'a' is in two splits"),
        ({"train.csv": "class,split\na,train\nb,test"}, "line 3: the split 'test' in the list of 'train'"),
        ({"train.csv": JSON}, "train.csv is JSON"),
    ],
)
def test_errors_of_a_folder_of_lists(tmp_path, files, message):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(SplitFileError, match=message):
        read_splits(str(tmp_path), tmp_path)


def test_a_missing_file_is_named(tmp_path):
    for function in (read_splits, read_classes, stamp):
        with pytest.raises(SplitFileError, match="There is no split file .*animals.json"):
            function("animals.json", tmp_path)


def test_errors_of_test_classes(tmp_path):
    with pytest.raises(SplitFileError, match="is a folder"):
        read_classes(str(tmp_path), tmp_path)
    (tmp_path / "list").write_text('{"train": ["a"], "valid": ["b"]}')
    with pytest.raises(SplitFileError, match="lists no test classes, only: train, valid"):
        read_classes("list", tmp_path)


def test_an_unreadable_file_is_named(tmp_path, monkeypatch):
    (tmp_path / "list").write_text(JSON)

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    with pytest.raises(SplitFileError, match=r"list can't be read \(Permission denied\)"):
        read_splits("list", tmp_path)


# Addresses


def test_an_address_is_fetched_once(tmp_path, served):
    folder, address, asked = served
    (folder / "animals.json").write_text(JSON)
    place = f"{address}/animals.json"
    for _ in range(3):
        assert read_splits(place, tmp_path) == ANIMALS
    assert asked == ["/animals.json"]
    kept = local_path(place, tmp_path)
    assert kept.read_text() == JSON and kept.parent == tmp_path / "data" / "splits"
    assert [file.name for file in kept.parent.iterdir()] == [kept.name]  # nothing else is left behind
    assert local_path(f"{place}?version=2", tmp_path) != kept


def test_what_is_fetched_is_kept_only_if_it_is_a_split_file(tmp_path, served):
    folder, address, asked = served
    (folder / "animals.json").write_text("<html>Not found</html>")
    with pytest.raises(SplitFileError, match="web page"):
        read_splits(f"{address}/animals.json", tmp_path)
    (folder / "animals.json").write_text(JSON)
    assert read_splits(f"{address}/animals.json", tmp_path) == ANIMALS


def test_an_address_that_does_not_answer_is_an_error(tmp_path, served, monkeypatch):
    _, address, _ = served
    monkeypatch.setattr(downloads, "PAUSE", 0)
    with pytest.raises(SplitFileError, match="404.*name the file in place of its address"):
        read_splits(f"{address}/nothing.csv", tmp_path)
    with pytest.raises(SplitFileError, match="can't be downloaded"):
        read_splits("http://127.0.0.1:1/animals.csv", tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path, served):
    (tmp_path / "data").write_text("a file where a folder should be")
    with pytest.raises(SplitFileError, match="can't be kept in .*data/splits"):
        read_splits(f"{served[1]}/animals.json", tmp_path)


def test_the_stamp_changes_with_the_content_alone(tmp_path):
    (tmp_path / "a.json").write_text(JSON)
    (tmp_path / "b.json").write_text(JSON)
    first = stamp("a.json", tmp_path)
    assert stamp("b.json", tmp_path) == first
    (tmp_path / "a.json").write_text(JSON + " ")
    assert stamp("a.json", tmp_path) != first
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "train.csv").write_text("class\na")
    (lists / "test.csv").write_text("class\nb")
    (lists / "readme.csv").write_text("x")
    of_folder = stamp("lists", tmp_path)
    (lists / "readme.csv").write_text("y")
    assert stamp("lists", tmp_path) == of_folder
    (lists / "train.csv").rename(lists / "valid.csv")
    assert stamp("lists", tmp_path) != of_folder


# Listed classes among those that are there


def test_listed_classes_are_found_in_natural_order():
    found = ["c10", "c9", "c1", "other"]
    assert match_classes({"train": ["c10", "c1"], "test": ["c9"]}, found, "x") == {
        "train": ("c1", "c10"),
        "test": ("c9",),
    }


def test_spelling_of_accents_and_spaces_at_the_ends_do_not_count():
    assert match_classes({"test": ["Ko\u0308ln", "a b "]}, ["K\u00f6ln", "a b"], "x") == {"test": ("K\u00f6ln", "a b")}
    assert match_classes({"test": ["a b"]}, ["a b "], "x") == {"test": ("a b ",)}


def test_a_listed_superclass_stands_for_its_classes():
    found, above = ["Greek/alpha", "Greek/beta", "Latin/a"], ["Greek", "Greek", "Latin"]
    assert match_classes({"train": ["Greek"], "test": ["Latin/a"]}, found, "x", above) == {
        "train": ("Greek/alpha", "Greek/beta"),
        "test": ("Latin/a",),
    }
    with pytest.raises(SplitFileError, match="'Greek/beta' is in two splits"):
        match_classes({"train": ["Greek"], "test": ["Greek/beta"]}, found, "x", above)


def test_a_listed_class_that_is_not_there_is_named_with_the_nearest():
    with pytest.raises(SplitFileError, match="1 of the 2 classes of 'test' .* 'zebar'. Did you mean 'Zebra'?"):
        match_classes({"test": ["ape", "zebar"]}, ["ape", "Zebra"], "animals.csv")


# Names


def test_natural_order():
    names = ["image10", "image9", "image09", "image", "Image1", "a2b10", "a2b9", "ä", "10", "9"]
    assert sorted(names, key=natural_key) == [
        "9",
        "10",
        "Image1",
        "a2b9",
        "a2b10",
        "image",
        "image09",
        "image9",
        "image10",
        "ä",
    ]


@given(st.lists(st.text(alphabet="aB1٣20é/."), unique=True))
def test_natural_order_does_not_depend_on_the_order_before(names):
    assert sorted(names, key=natural_key) == sorted(reversed(names), key=natural_key)
    assert sorted(names, key=natural_key) == sorted(sorted(names), key=natural_key)


def test_names_that_differ_only_in_case_are_refused():
    check_distinct(["cat", "cats"], "here")
    for pair in (["cat", "Cat"], ["Straße", "STRASSE"], ["K\u00f6ln", "Ko\u0308ln"]):
        with pytest.raises(DatasetError, match="here: .* differ only in upper and lower case"):
            check_distinct(["dog", *pair], "here")


def test_messages_show_some_names():
    assert some(["a", "b"]) == "'a', 'b'" and some("abcde") == "'a', 'b', 'c' and 2 more"
    assert nearest("zebar", ["ape", "zebra"]) == " Did you mean 'zebra'?" and nearest("x", ["ape"]) == ""
    assert normal("o\u0308") == "\u00f6"
