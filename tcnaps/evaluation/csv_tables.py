"""Small tables as CSV files: those that a study makes, and the paper's own in results/published."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tcnaps.config import UserError, project_root
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


def read_csv(path: str | Path, numbers: Sequence[str] = (), others: Sequence[str] = ()) -> pd.DataFrame:
    """Reads a table; a UserError names the file unless it has the columns `numbers`, of numbers, and `others`."""
    try:
        frame = pd.read_csv(path)
        if missing := [column for column in (*numbers, *others) if column not in frame]:
            raise ValueError(f"it lacks the columns {', '.join(missing)}")
        return frame.astype(dict.fromkeys(numbers, float))
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(f"{path} can't be read as a table ({error}). Restore it, or make it again.") from error


def read_published(table: int, folder: str | Path | None = None) -> pd.DataFrame:
    """The rows of one of the paper's Tables 1 to 4, with accuracies and intervals in [0, 1].

    Args:
        folder: where the transcribed tables lie; default: results/published in the project.
    """
    if table not in PUBLISHED_FILES:
        raise ValueError(f"There is no published table {table}; there are Tables 1 to 4.")
    rows = read_csv(_published(folder) / PUBLISHED_FILES[table], ["accuracy", "interval"], ["model", "source"])
    return rows.assign(accuracy=rows["accuracy"] / 100, interval=rows["interval"] / 100)


def read_published_averages(table: int, folder: str | Path | None = None) -> pd.DataFrame:
    """The printed summary columns: `model`, `domain`, and `rank` (Table 1) or `accuracy` (Tables 3, 4)."""
    averages = read_csv(_published(folder) / "averages.csv", ["value"], ["model", "source", "domain", "quantity"])
    rows = averages[averages["source"] == f"Table {table}"].reset_index(drop=True)
    if rows.empty:
        raise ValueError(f"Table {table} prints no averages; {', '.join(map(str, averages['source'].unique()))} do.")
    quantity = rows["quantity"].iloc[0]  # accuracy or rank
    value = rows["value"] / 100 if quantity == "accuracy" else rows["value"]
    return rows.drop(columns=["quantity", "value"]).assign(**{quantity: value})


def read_shuffled_gains() -> dict[tuple[str, str, str], float]:
    """The authors' gains on data shuffled within classes, in [0, 1], by the two models and the domain."""
    rows = read_csv(_published(None) / "shuffled-gains.csv", ["difference"], ["model", "minus", "domain", "source"])
    return {(row.model, row.minus, row.domain): row.difference / 100 for row in rows.itertuples()}


def _published(folder: str | Path | None) -> Path:
    return project_root() / "results" / "published" if folder is None else Path(folder)
