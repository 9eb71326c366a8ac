"""Array files written piece by piece are what NumPy would have written at once."""

import tempfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tcnaps.datasets import array_files


@given(st.data())
def test_leaving_out_rows(data):
    n = data.draw(st.integers(1, 40))
    rows = data.draw(st.sets(st.integers(0, n - 1), max_size=n - 1).map(sorted))
    array = np.random.default_rng(n).integers(0, 256, (n, 3, 3, 3), np.uint8)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_files, "BLOCK", 64)
        file = Path(folder) / "a.npy"
        np.save(file, array)
        array_files.leave_out(file, rows)
        np.testing.assert_array_equal(np.load(file), np.delete(array, rows, axis=0))
        assert file.stat().st_size == array_files.file_size((n - len(rows), 3, 3, 3))
        np.save(Path(folder) / "b.npy", np.delete(array, rows, axis=0))
        assert file.read_bytes() == (Path(folder) / "b.npy").read_bytes()


@pytest.mark.parametrize("before", [None, 3, 50])
def test_reserving_keeps_what_is_there(tmp_path, before):
    array = np.arange(50 * 12, dtype=np.uint32).astype(np.uint8).reshape(50, 2, 2, 3)
    file = tmp_path / "a.npy"
    if before is not None:
        np.save(file, array[:before])
    array_files.reserve(file, (20, 2, 2, 3))
    wanted = np.zeros((20, 2, 2, 3), np.uint8)
    wanted[: before or 0] = array[: min(before or 0, 20)]
    np.testing.assert_array_equal(np.load(file), wanted)


def test_headers_of_all_lengths_take_as_many_bytes():
    assert len({len(array_files.header((n, 84, 84, 3))) for n in (1, 9, 10, 99_999, 10**7, 10**12)}) == 1
