"""Tables come out whole and the same each time."""

import pandas as pd
import pytest

from tcnaps.config import UserError
from tcnaps.evaluation.csv_tables import read_published, read_published_averages, write_csv


def test_csv_is_the_same_twice(tmp_path):
    frame = pd.DataFrame({"dataset": ["a", "b"], "accuracy": [1 / 3, 0.1 + 0.2], "n": [1, 2]})
    first = write_csv(frame, tmp_path / "new" / "folder" / "one.csv")
    second = write_csv(frame.copy(), tmp_path / "two.csv")
    assert first.read_bytes() == second.read_bytes() == b"dataset,accuracy,n\na,0.333333,1\nb,0.3,2\n"
    assert [file.name for file in first.parent.iterdir()] == ["one.csv"]


@pytest.mark.parametrize("content", [b"model,source\nSimple,Table 3\n", b"\xff\xfe"])
def test_damaged_tables_of_the_paper_are_refused_by_name(tmp_path, content):
    for name in ("table-3-ablations.csv", "averages.csv"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match="table-3-ablations.csv"):
        read_published(3, tmp_path)
    with pytest.raises(UserError, match="averages.csv"):
        read_published_averages(3, tmp_path)
