"""Arrays written piece by piece are what NumPy would have written at once."""

import tempfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tcnaps.datasets import arrays


@given(st.data())
def test_leaving_out_rows(data):
    n = data.draw(st.integers(1, 40))
    rows = data.draw(st.sets(st.integers(0, n - 1), max_size=n - 1).map(sorted))
    array = np.random.default_rng(n).integers(0, 256, (n, 3, 3, 3), np.uint8)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "ROWS_MOVED", 4)
        left, wanted = Path(folder) / "a.npy", Path(folder) / "b.npy"
        np.save(left, array)
        arrays.leave_out(left, rows)
        np.save(wanted, np.delete(array, rows, axis=0))
        assert left.read_bytes() == wanted.read_bytes()


@pytest.mark.parametrize(("before", "kept"), [(None, False), (20, True), (3, False), (50, False)])
def test_creating_keeps_an_array_of_the_same_shape(tmp_path, before, kept):
    array = np.random.default_rng(0).integers(0, 256, (50, 2, 2, 3), np.uint8)
    file = tmp_path / "a.npy"
    if before is not None:
        np.save(file, array[:before])
    arrays.create(file, (20, 2, 2, 3))
    np.testing.assert_array_equal(np.load(file), array[:20] if kept else np.zeros((20, 2, 2, 3)))
