"""Malformed records and dataset_spec.json: an error that names the file, or the images that were written."""

import json

import pytest
from fuzzing import JUNK, accepted, cases, damaged, mutated
from hypothesis import given, strategies as st
from record_files import BILEVEL, HIERARCHICAL, UNIFORM, content, image_example, record, write_uniform

from tcnaps.data import DatasetError
from tcnaps.data.readers.meta_dataset import parse_example, read_index, read_specification, record_at

pytestmark = pytest.mark.fuzz
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
