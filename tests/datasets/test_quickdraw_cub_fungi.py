"""QuickDraw, CUB and Fungi, written here as they are distributed but tiny; and what the readers of datasets share."""

import io
import json
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image
from record_files import names_by_class as listed

from tcnaps.config import settings
from tcnaps.datasets import DatasetError, open_source
from tcnaps.datasets.decoding import ImageError
from tcnaps.datasets.listing import ImageFile
from tcnaps.datasets.readers.quickdraw_cub_fungi import open_cub, open_fungi, open_quickdraw, read_bitmap
from tcnaps.datasets.readers.shared import Images, thinned

OPENERS = {
    "quickdraw": (open_quickdraw, settings.QuickDraw),
    "cub": (open_cub, settings.CUB),
    "fungi": (open_fungi, settings.Fungi),
}


def section(source, **keys):
    return OPENERS[source][1](source=source, domain="in", **{"path": "data", **keys})


def opened(tmp_path, source, **keys):
    return OPENERS[source][0]("it", section(source, **keys), tmp_path)


def save(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), "teal").save(path)


# QuickDraw


@pytest.fixture
def drawings(tmp_path):
    """Drawings by class, as written."""
    generator = np.random.default_rng(0)
    written = {
        name: generator.integers(0, 256, (n, 784), dtype=np.uint8)
        for name, n in (("police car", 5), ("cat", 3), ("The Eiffel Tower", 2))
    }
    (tmp_path / "data").mkdir(exist_ok=True)
    for name, drawn in written.items():
        np.save(tmp_path / "data" / f"{'full_numpy_bitmap_' if name == 'cat' else ''}{name}.npy", drawn)
    return written


def test_every_drawing_is_listed_and_not_inverted(tmp_path, drawings):
    listing = opened(tmp_path, "quickdraw").listing()
    part = listing.splits["test"]
    assert list(listing.splits) == ["test"] and part.class_names == ("The Eiffel Tower", "cat", "police car")
    read = pickle.loads(pickle.dumps(listing.read))
    for name, images in zip(part.class_names, part.images):
        assert np.array_equal([read(image) for image in images], drawings[name].reshape(-1, 28, 28))
    assert part.images[2][4] == ImageFile(str(tmp_path / "data" / "police car.npy"), (4,))
    assert listing.resampling is None


def test_drawings_are_prepared_as_pillow_resizes_them(tmp_path, drawings):
    dataset = section("quickdraw", path=str(tmp_path / "data"))
    prepared = open_source("quickdraw", dataset, "test", 20, tmp_path / "prepared")
    assert prepared.class_sizes.tolist() == [2, 3, 5]
    expected = Image.fromarray(drawings["cat"][1].reshape(28, 28)).convert("RGB").resize((20, 20), 2)  # bilinear
    assert np.array_equal(prepared.image(1, 1), expected)


def test_at_most_so_many_drawings_a_class(tmp_path, drawings):
    part = opened(tmp_path, "quickdraw", images_per_class=3).listing().splits["test"]
    assert [[image.position[0] for image in images] for images in part.images] == [[0, 1], [0, 1, 2], [0, 1, 3]]


def test_a_file_that_changes_is_noticed(tmp_path, drawings):
    listing = opened(tmp_path, "quickdraw").listing()
    image = listing.splits["test"].images[2][4]
    np.save(image.path, drawings["police car"][:4])
    with pytest.raises(ImageError, match="police car.npy: there is no drawing 4: the file has changed"):
        read_bitmap(image)
    np.save(image.path, np.full((5, 784), 9, dtype=np.uint8))
    assert (read_bitmap(image) == 9).all()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 783), np.uint8), r"uint8 of the shape \(3, 783\), not one row of 784 uint8"),
        (np.zeros((3, 28, 28), np.uint8), r"uint8 of the shape \(3, 28, 28\)"),
        (np.zeros((), np.uint8), r"the shape \(\)"),
        (np.zeros((3, 784)), "float64 of the shape"),
        (np.asfortranarray(np.zeros((3, 784), np.uint8)), "uint8 of the shape"),
    ],
)
def test_other_arrays_are_refused(tmp_path, drawings, array, message):
    np.save(tmp_path / "data" / "zebra.npy", array)
    with pytest.raises(DatasetError, match=f"zebra.npy holds.* {message}"):
        opened(tmp_path, "quickdraw").listing()


def test_other_files_and_files_cut_short_are_refused(tmp_path, drawings):
    file = tmp_path / "data" / "police car.npy"
    intact, pickled = file.read_bytes(), io.BytesIO()
    np.save(pickled, np.array([{"a": 1}], dtype=object), allow_pickle=True)  # never unpickled
    for content in (intact[:-1], intact[:60], b"", b"text, not numbers", pickled.getvalue()):
        file.write_bytes(content)
        with pytest.raises(DatasetError, match="police car.npy is not a .npy file, or was cut short"):
            opened(tmp_path, "quickdraw").listing()


def test_a_class_in_two_files_and_a_folder_without_any_are_refused(tmp_path, drawings):
    np.save(tmp_path / "data" / "cat.npy", drawings["cat"])
    message = "two files of the class 'cat', with and without full_numpy_bitmap_; delete one"
    with pytest.raises(DatasetError, match=message):
        opened(tmp_path, "quickdraw").listing()
    with pytest.raises(DatasetError, match="holds no .npy files. The .npy files, one per class, are published at"):
        opened(tmp_path, "quickdraw", path=".").listing()


# CUB


@pytest.fixture
def birds(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir(exist_ok=True)
    (folder / "classes.txt").write_text("1 001.Black_footed_Albatross\n2 002.Laysan_Albatross\n")
    names = [
        "001.Black_footed_Albatross/B_0010_1.jpg",
        "002.Laysan_Albatross/L_0001_7.jpg",
        "001.Black_footed_Albatross/B_0009_2.jpg",
    ]
    (folder / "images.txt").write_text("".join(f"{k} {name}\n" for k, name in enumerate(names, start=1)))
    (folder / "image_class_labels.txt").write_text("1 1\n2 2\n3 1\n")
    for name in names:
        save(folder / "images" / name)
    return folder


def test_birds_by_their_lists(tmp_path, birds):
    listing = opened(tmp_path, "cub").listing()
    assert listed(listing) == {
        "test": {
            "001.Black_footed_Albatross": ["B_0009_2.jpg", "B_0010_1.jpg"],
            "002.Laysan_Albatross": ["L_0001_7.jpg"],
        }
    }
    assert not listing.orient and not listing.box
    image = listing.splits["test"].images[0][1]
    assert listing.read(image) == str(birds / "images" / "001.Black_footed_Albatross" / "B_0010_1.jpg")
    prepared = open_source("cub", section("cub", path=str(birds)), "test", 4, tmp_path / "prepared")
    assert prepared.class_sizes.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("image_class_labels.txt", "1 2\n2 2\n3 1\n", "B_0010_1.jpg, image 1, is of 002.Laysan_Albatross by image"),
        ("image_class_labels.txt", "1 1\n2 2\n", "B_0009_2.jpg, image 3, is of no class"),
        ("classes.txt", "1 001.Black_footed_Albatross\n", "L_0001_7.jpg, image 2, is of no class"),
        ("classes.txt", "1\n", "classes.txt, line 1: '1' has 1 of 2 fields"),
        ("classes.txt", "1 001.Bl\udce4\udcdfhuhn\n", "classes.txt is not UTF-8"),
        ("images.txt", "1 001.Black_footed_Albatross/new.jpg\n", r"1 of the 1 images that images.txt lists .*new.jpg"),
    ],
)
def test_lists_of_birds_that_contradict_each_other_are_refused(tmp_path, birds, file, content, message):
    (birds / file).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(DatasetError, match=message):
        opened(tmp_path, "cub").listing()


# Fungi


def annotations(
    images, categories=((0, "Amanita muscaria"), (186, "Cortinarius anomalus"), (1333, "Cortinarius anomalus"))
):
    """Images are (id, file, category's id)."""
    return {
        "categories": [{"id": number, "name": name} for number, name in categories],
        "images": [{"id": number, "file_name": file, "width": 8, "height": 6} for number, file, _ in images],
        "annotations": [{"id": number, "image_id": number, "category_id": category} for number, _, category in images],
    }


@pytest.fixture
def mushrooms(tmp_path):
    folder = tmp_path / "data"
    train = [(1, "images/a/2.JPG", 186), (2, "images/b/1.JPG", 1333), (3, "images/a/10.JPG", 186)]
    for _, file, _ in [*train, (4, "images/c/7.JPG", 0)]:
        save(folder / file)
    (folder / "train.json").write_text(json.dumps(annotations(train)))
    (folder / "val.json").write_text(json.dumps(annotations([(4, "images/c/7.JPG", 0)])))
    return folder


def test_mushrooms_of_both_lists_under_names_with_numbers(tmp_path, mushrooms):
    expected = {
        "test": {
            "0000.Amanita muscaria": ["7.JPG"],
            "0186.Cortinarius anomalus": ["2.JPG", "10.JPG"],
            "1333.Cortinarius anomalus": ["1.JPG"],
        }
    }
    listing = opened(tmp_path, "fungi").listing()
    assert listed(listing) == expected and not listing.orient
    prepared = open_source("fungi", section("fungi", path=str(mushrooms)), "test", 4, tmp_path / "prepared")
    assert prepared.class_sizes.tolist() == [1, 2, 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (annotations([(4, "images/c/7.JPG", 5)]), r"val.json is not a list of annotated images \(KeyError\(5\)\)"),
        ({"images": []}, "val.json is not a list of annotated images"),
        ([], "val.json is not a JSON object"),
        (annotations([(4, "images/c/7.JPG", 0)], [(0, "Amanita")]), "train.json and .*val.json name the species diff"),
        (annotations([(4, "images/a/2.JPG", 0)]), "val.json: images/a/2.JPG is of two species"),
        (annotations([(4, "images/c/8.JPG", 0)]), "1 of the 4 images that train.json or val.json lists .*'images/c/8"),
    ],
)
def test_wrong_lists_of_mushrooms_are_refused(tmp_path, mushrooms, content, message):
    (mushrooms / "val.json").write_text(json.dumps(content))
    with pytest.raises(DatasetError, match=message):
        opened(tmp_path, "fungi").listing()


# What all of them do


@pytest.mark.parametrize("source", OPENERS)
def test_what_is_missing_and_how_to_get_it(tmp_path, source):
    found = opened(tmp_path, source)
    assert found.needs[0].is_relative_to(tmp_path / "data")
    assert "'path' is the folder" in found.help and re.search("[0-9] Gi?B", found.help)
    with pytest.raises(DatasetError, match=rf"(?s){re.escape(str(found.needs[0]))}.*'path' is the folder"):
        open_source("it", section(source, path=str(tmp_path / "data")), "test", 4, tmp_path / "prepared")


def test_the_stamp_changes_with_the_files(tmp_path, drawings, birds):
    (tmp_path / "splits.json").write_text('{"train": ["a"]}')

    def stamp(source, **keys):
        return json.dumps(opened(tmp_path, source, **keys).stamp())

    seen = [stamp("quickdraw"), stamp("cub"), stamp("cub", splits="splits.json")]
    assert stamp("quickdraw") == seen[0]
    for source, file in (
        ("quickdraw", "cat.npy"),
        ("cub", "images.txt"),
        ("cub", "images/002.Laysan_Albatross/new.jpg"),
    ):
        (tmp_path / "data" / file).write_text("something else")
        seen.append(stamp(source))
    (tmp_path / "splits.json").write_text('{"train": ["b"]}')
    seen.append(stamp("cub", splits="splits.json"))
    assert len(set(seen)) == len(seen)


# What they share


@given(st.integers(0, 2000), st.none() | st.integers(1, 500))
def test_thinned_numbers_are_spread_evenly(n, at_most):
    kept = thinned(n, at_most)
    assert len(kept) == (n if at_most is None else min(n, at_most))
    steps = np.diff(kept)
    assert len(steps) == 0 or (steps.min() >= 1 and steps.max() - steps.min() <= 1)
    assert len(kept) == 0 or (kept[0] == 0 and n - kept[-1] >= steps.max(initial=1) - 1 and kept[-1] < n)


def test_images_are_a_sequence_that_can_be_sent_to_other_processes():
    table = np.arange(12).reshape(4, 3)
    for names, rows in ((("a",), table), (("a", "b", "c", "d"), table), (("a", "b", "c", "d"), None)):
        images = Images("in", names, rows)
        positions = [()] * 4 if rows is None else [tuple(row) for row in rows.tolist()]
        plain = [ImageFile(f"in/{names[k % len(names)]}", position) for k, position in enumerate(positions)]
        assert list(images) == plain and images[-1] == plain[-1] and images[1:3] == plain[1:3] and len(images) == 4
        assert list(pickle.loads(pickle.dumps(images))) == plain
        assert all(type(number) is int for number in images[0].position)
        with pytest.raises(IndexError):
            images[4]
