"""Malformed images, lists, records and dataset_spec.json: an error that names the file, or what can be read."""

import json
import os

import numpy as np
import pytest
from file_readers import noise
from fuzzing import JUNK, accepted, cases, damaged, mutated
from hypothesis import given, strategies as st
from record_files import BILEVEL, HIERARCHICAL, UNIFORM, content, image_example, record, write_uniform

from tcnaps.data import DatasetError
from tcnaps.data.decoding import square, to_rgb
from tcnaps.data.readers.folders import read_list
from tcnaps.data.readers.meta_dataset import parse_example, read_index, read_specification, record_at

pytestmark = pytest.mark.fuzz
FORMATS = {"PNG": "RGB", "JPEG": "RGB", "GIF": "P", "BMP": "RGB", "TIFF": "RGB", "WEBP": "RGB", "PPM": "RGB"}
SAMPLES = [noise(seed, (9, 7), kind, mode) for seed, (kind, mode) in enumerate(FORMATS.items())]
SAMPLES += [noise(8, (5, 4), "PNG", mode) for mode in ("L", "LA", "RGBA", "1", "P")]
SAMPLES += [noise(9, (6, 6), "JPEG", "CMYK")]


@cases(120)
@given(data=st.data(), fast=st.booleans(), resampling=st.sampled_from(["bilinear", "lanczos", "aligned corners"]))
def test_damaged_images_are_refused_or_become_pixels(data, fast, resampling):
    file = data.draw(damaged(data.draw(st.sampled_from(SAMPLES))))
    image = accepted(lambda: to_rgb(file, fast), DatasetError)
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


EXAMPLES = [image_example(content(label, 1), label) for label in (0, 3, 2**40)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_uniform(tmp_path_factory.mktemp("records"))


@cases(80)
@given(data=st.data())
def test_damaged_records_are_refused_by_name_or_read_as_written(data, folder):
    file, original = folder / "fuzzed.tfrecords", b"".join(record(example) for example in EXAMPLES)
    file.write_bytes(data.draw(damaged(original)))
    found = accepted(lambda: [record_at(file, *place) for place in read_index(file)], DatasetError, str(file))
    written = [parse_example(example) for example in EXAMPLES]
    assert all(one in written for one in found or ())  # whole records may be gone or doubled; none is another


@cases(120)
@given(data=st.data())
def test_specifications_are_refused_by_name_or_agree_with_themselves(data, folder):
    original = data.draw(st.sampled_from([UNIFORM, BILEVEL, HIERARCHICAL]))
    file = folder / "fuzzed.json"
    if data.draw(st.booleans()):
        changed, _ = data.draw(mutated(original, JUNK | st.integers(-3, 9)))
        file.write_text(json.dumps(changed))
    else:
        file.write_bytes(data.draw(damaged(json.dumps(original).encode())))
    if not (found := accepted(lambda: read_specification(file), DatasetError, str(file))):
        return
    labels, sizes = zip(*(entry for classes in found.classes.values() for entry in classes.values()), strict=True)
    assert labels == tuple(range(len(labels))) and all(isinstance(size, int) and size >= 0 for size in sizes)
    for split, spans in found.spans.items():
        assert all(0 <= k < len(found.classes[split]) for span in spans for k in span)
