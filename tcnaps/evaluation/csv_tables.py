"""Small tables as CSV files: those that a study makes, and the paper's own in results/published."""

from pathlib import Path

import pandas as pd

from tcnaps.config import project_root
from tcnaps.config.storage import replacing


def write_csv(frame: pd.DataFrame, path: str | Path) -> Path:
    """Writes a table without its index, numbers with six digits. Equal frames give equal bytes."""
    with replacing(path) as temporary:
        frame.to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")
    return Path(path)


def read_published(table: int) -> pd.DataFrame:
    """The rows of one of the paper's Tables 1 to 4, with accuracies and intervals in [0, 1]."""
    rows = published(f"table-{table}-*.csv")
    return rows.assign(accuracy=rows["accuracy"] / 100, interval=rows["interval"] / 100)


def read_published_averages(table: int) -> pd.DataFrame:
    """The printed summary columns: `model`, `domain`, and `rank` (Table 1) or `accuracy` (Tables 3, 4)."""
    averages = published("averages.csv")
    rows = averages[averages["source"] == f"Table {table}"].reset_index(drop=True)
    quantity = rows["quantity"].iloc[0]  # accuracy or rank
    value = rows["value"] / 100 if quantity == "accuracy" else rows["value"]
    return rows.drop(columns=["quantity", "value"]).assign(**{quantity: value})


def published(pattern: str) -> pd.DataFrame:
    """One of the files in results/published, as it is."""
    (file,) = (project_root() / "results" / "published").glob(pattern)
    return pd.read_csv(file)
