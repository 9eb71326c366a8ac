"""Small tables as CSV files: those that a study makes, and the paper's own in results/published."""

from pathlib import Path

import pandas as pd

from tcnaps.config import project_root
from tcnaps.config.storage import replacing

PUBLISHED_FILES = {
    1: "table-1-meta-dataset.csv",
    2: "table-2-mini-tiered-imagenet.csv",
    3: "table-3-ablations.csv",
    4: "table-4-refinement-steps.csv",
}


def write_csv(frame: pd.DataFrame, path: str | Path) -> Path:
    """Writes a table without its index, numbers with six digits. Equal frames give equal bytes."""
    with replacing(path) as temporary:
        frame.to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")
    return Path(path)


def read_published(table: int) -> pd.DataFrame:
    """The rows of one of the paper's Tables 1 to 4, with accuracies and intervals in [0, 1]."""
    rows = _published(PUBLISHED_FILES[table])
    return rows.assign(accuracy=rows["accuracy"] / 100, interval=rows["interval"] / 100)


def read_published_averages(table: int) -> pd.DataFrame:
    """The printed summary columns: `model`, `domain`, and `rank` (Table 1) or `accuracy` (Tables 3, 4)."""
    averages = _published("averages.csv")
    rows = averages[averages["source"] == f"Table {table}"].reset_index(drop=True)
    quantity = rows["quantity"].iloc[0]  # accuracy or rank
    value = rows["value"] / 100 if quantity == "accuracy" else rows["value"]
    return rows.drop(columns=["quantity", "value"]).assign(**{quantity: value})


def read_shuffled_gains() -> dict[tuple[str, str, str], float]:
    """The authors' gains on data shuffled within classes, in [0, 1], by the two models and the domain."""
    rows = _published("shuffled-gains.csv")
    return {(row.model, row.minus, row.domain): row.difference / 100 for row in rows.itertuples()}


def _published(name: str) -> pd.DataFrame:
    return pd.read_csv(project_root() / "results" / "published" / name)
