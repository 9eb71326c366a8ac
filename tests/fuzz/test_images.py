"""Malformed images, folders and lists: an error that names the file or folder, or pixels of all that can be read."""

import os

import numpy as np
import pytest
from file_readers import noise
from fuzzing import accepted, cases, damaged
from hypothesis import given, strategies as st

from tcnaps.data import DatasetError
from tcnaps.data.decoding import square, to_rgb
from tcnaps.data.readers.folders import read_list

pytestmark = pytest.mark.fuzz
FORMATS = {"PNG": "RGB", "JPEG": "RGB", "GIF": "P", "BMP": "RGB", "TIFF": "RGB", "WEBP": "RGB", "PPM": "RGB"}
SAMPLES = [noise(seed, (9, 7), kind, mode) for seed, (kind, mode) in enumerate(FORMATS.items())]
SAMPLES += [noise(8, (5, 4), "PNG", mode) for mode in ("L", "LA", "RGBA", "1", "P")]
SAMPLES += [noise(9, (6, 6), "JPEG", "CMYK")]


@cases(120)
@given(data=st.data(), fast=st.booleans(), resampling=st.sampled_from(["bilinear", "lanczos", "aligned corners"]))
def test_damaged_images_are_refused_or_become_pixels(data, fast, resampling):
    content = data.draw(damaged(data.draw(st.sampled_from(SAMPLES))))
    image = accepted(lambda: to_rgb(content, fast), DatasetError)
    if image and image.width * image.height < 10**6:
        pixels = square(image, 4, resampling)
        assert pixels.shape == (4, 4, 3) and pixels.dtype == np.uint8


LIST = b"class,split,file\ncat,train,1.png\ndog,valid,2.png\n" + "épée,test,3.png\n".encode()
JSON = b'{"train": ["cat", "dog"], "valid": [1, 2], "test": []}'
TEXTS = st.text(st.sampled_from('abcn0123456789,;"\n\r\t {}[]:'), max_size=60).map(str.encode)


@cases(80)
@given(data=st.data(), name=st.sampled_from(["splits.csv", "splits.json", "train.csv"]))
def test_lists_are_refused_by_name_or_every_class_has_a_split(data, name, tmp_path_factory):
    file = tmp_path_factory.getbasetemp() / f"{os.getpid()}-{name}"
    file.write_bytes(data.draw(damaged(JSON if name.endswith("json") else LIST) | TEXTS))
    if listed := accepted(lambda: read_list(file), DatasetError, str(file)):
        assert all(label and split in ("train", "valid", "test") for label, split, _ in listed)
