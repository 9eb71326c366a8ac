"""Malformed images, folders and lists: an error that names the file or folder, or pixels of all that can be read."""

import os
import shutil

import numpy as np
import pytest
from file_readers import encoded
from fuzzing import cases, damaged
from hypothesis import given, strategies as st

from tcnaps.config.settings import Decoding, Folder
from tcnaps.data import DatasetError, preparation
from tcnaps.data.decoding import square, to_rgb
from tcnaps.data.preparing import ensure_prepared
from tcnaps.data.readers.csv_lists import read_list

pytestmark = pytest.mark.fuzz
FORMATS = {"PNG": "RGB", "JPEG": "RGB", "GIF": "P", "BMP": "RGB", "TIFF": "RGB", "WEBP": "RGB", "PPM": "RGB"}
SAMPLES = [encoded(seed, (9, 7), kind, mode) for seed, (kind, mode) in enumerate(FORMATS.items())]
SAMPLES += [encoded(8, (5, 4), "PNG", mode) for mode in ("L", "LA", "RGBA", "1", "P")] + [
    encoded(9, (6, 6), "JPEG", "CMYK")
]


@cases(120)
@given(data=st.data(), fast=st.booleans(), resampling=st.sampled_from(["bilinear", "lanczos", "aligned corners"]))
def test_damaged_images_are_refused_or_become_pixels(data, fast, resampling):
    content = data.draw(damaged(data.draw(st.sampled_from(SAMPLES))))
    try:
        image = to_rgb(content, fast)
    except DatasetError as error:
        assert len(str(error)) > 5
        return
    if image.width * image.height < 10**6:
        pixels = square(image, 4, resampling)
        assert pixels.shape == (4, 4, 3) and pixels.dtype == np.uint8


PLACES = st.sampled_from(
    ["train", "val", "test", "cat", "dog", "Cat", ".hidden", "@eaDir", "é", "e\u0301", "a b", "1", "10", "2"]
)
NAMES = st.sampled_from(
    ["1.png", "2.PNG", "10.png", "x.jpg", "notes.txt", "Thumbs.db", ".png", "a.gif", "class,split.csv"]
)
FILES = st.dictionaries(
    st.tuples(st.lists(PLACES, max_size=3).map(tuple), NAMES),
    st.integers(-2, len(SAMPLES) - 1),
    min_size=1,
    max_size=10,
)
KEYS = st.fixed_dictionaries(
    {},
    optional={
        "superclasses": st.booleans(),
        "fractions": st.sampled_from([(0.5, 0.25, 0.25), (1.0, 0.0, 0.0), (0.5, 0.5, 0.5)]),
        "unreadable": st.sampled_from(["leave out", "refuse"]),
    },
)


@cases(50)
@given(files=FILES, keys=KEYS)
def test_folders_are_refused_by_name_or_prepared_with_all_their_images(files, keys, tmp_path_factory):
    root = tmp_path_factory.mktemp("folders")
    folder, contents = root / "images", {}
    folder.mkdir()
    for (places, name), number in files.items():
        file = folder.joinpath(*places, name)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            contents[file] = SAMPLES[number] if number >= 0 else b"no image"[: 8 * (number + 2)]
            file.write_bytes(contents[file])
        except OSError:  # a file of that name is there already
            contents.pop(file, None)
    try:
        made = preparation("some", Folder(source="folder", domain="in", path=str(folder), **keys), 8, Decoding())
        splits, notes = ensure_prepared(made, root / "data")
    except DatasetError as error:
        assert str(folder) in str(error) or "'some'" in str(error)
    else:
        assert all(source.class_sizes.min() > 0 for source in splits.values())
        assert 0 < sum(len(source.images) for source in splits.values()) <= len(contents)
    shutil.rmtree(root)


LIST = b"class,split,file\ncat,train,1.png\ndog,valid,2.png\n" + "épée,test,3.png\n".encode()
JSON = b'{"train": ["cat", "dog"], "valid": [1, 2], "test": []}'
TEXTS = st.text(st.sampled_from('abcn0123456789,;"\n\r\t {}[]:'), max_size=60).map(str.encode)


@cases(80)
@given(data=st.data(), name=st.sampled_from(["splits.csv", "splits.json", "train.csv"]))
def test_lists_are_refused_by_name_or_have_a_class_and_a_split_in_every_line(data, name, tmp_path_factory):
    file = tmp_path_factory.getbasetemp() / f"{os.getpid()}-{name}"
    file.write_bytes(data.draw(damaged(JSON if name.endswith("json") else LIST) | TEXTS))
    try:
        table = read_list(file)
    except DatasetError as error:
        assert str(file) in str(error)
        return
    assert len(table) and set(table["split"]) <= {"train", "valid", "test"} and (table["class"] != "").all()
    assert (table.groupby("class")["split"].nunique() == 1).all()
