"""Tables come out whole and the same each time."""

import pandas as pd
import pytest

from tcnaps.config.storage import StorageError
from tcnaps.evaluation.csv_tables import write_csv


def test_csv_is_the_same_twice(tmp_path):
    frame = pd.DataFrame({"dataset": ["a", "b"], "accuracy": [1 / 3, 0.1 + 0.2], "n": [1, 2]})
    first = write_csv(frame, tmp_path / "new" / "folder" / "one.csv")
    second = write_csv(frame.copy(), tmp_path / "two.csv")
    assert first.read_bytes() == second.read_bytes() == b"dataset,accuracy,n\na,0.333333,1\nb,0.3,2\n"
    assert [file.name for file in first.parent.iterdir()] == ["one.csv"]


def test_a_failed_csv_leaves_the_old_one(tmp_path, monkeypatch):
    path = write_csv(pd.DataFrame({"x": [1]}), tmp_path / "table.csv")

    def fail(self, file, **options):
        file.write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(pd.DataFrame, "to_csv", fail)
    with pytest.raises(StorageError, match="disk full"):
        write_csv(pd.DataFrame({"x": [2]}), path)
    assert path.read_text() == "x\n1\n" and len(list(tmp_path.iterdir())) == 1
