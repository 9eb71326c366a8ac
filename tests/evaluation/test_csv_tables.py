"""Tables come out whole and the same each time."""

import pandas as pd

from tcnaps.evaluation.result_files import write_csv


def test_csv_is_the_same_twice(tmp_path):
    frame = pd.DataFrame({"dataset": ["a", "b"], "accuracy": [1 / 3, 0.1 + 0.2], "n": [1, 2]})
    first = write_csv(frame, tmp_path / "new" / "folder" / "one.csv")
    second = write_csv(frame.copy(), tmp_path / "two.csv")
    assert first.read_bytes() == second.read_bytes() == b"dataset,accuracy,n\na,0.333333,1\nb,0.3,2\n"
    assert [file.name for file in first.parent.iterdir()] == ["one.csv"]
