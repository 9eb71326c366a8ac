"""Small tables as CSV files, kept in git: those that a study makes, and the paper's own in results/published."""

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
    """Writes a table without its index, numbers with six digits; equal frames give equal bytes.

    Raises:
        StorageError: there is no room, or the folder can't be written to. A file that was there stays as it was.
    """
    with replacing(path) as temporary:
        frame.to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")
    return Path(path)


def read_csv(path: str | Path, numbers: Sequence[str] = (), others: Sequence[str] = ()) -> pd.DataFrame:
    """Reads a table, which must have these columns: `numbers` of numbers, and `others`.

    Raises:
        UserError: the file is no such table; the message names it.
    """
    try:
        frame = pd.read_csv(path)
        if missing := [column for column in (*numbers, *others) if column not in frame]:
            raise ValueError(f"it lacks the columns {', '.join(missing)}")
        return frame.astype(dict.fromkeys(numbers, float))
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(f"{path} is no table that can be read ({error}). Restore it, or make it again.") from error


def read_published(table: int, folder: str | Path | None = None) -> pd.DataFrame:
    """Rows of one of the paper's Tables 1 to 4, accuracies and intervals in [0, 1].

    Args:
        folder: where the transcribed tables lie; the default is results/published in the project.

    Raises:
        ValueError: the paper's results fill Tables 1 to 4 only.
        FileNotFoundError: the folder has no such table.
        UserError: the file is damaged.
    """
    if table not in PUBLISHED_FILES:
        raise ValueError(f"There is no published table {table}; there are Tables 1 to 4.")
    frame = _published_csv(PUBLISHED_FILES[table], folder)
    return frame.assign(accuracy=frame["accuracy"] / 100, interval=frame["interval"] / 100)


def read_published_averages(table: int, folder: str | Path | None = None) -> pd.DataFrame:
    """The printed summary columns: `model`, `domain`, and `rank` (Table 1) or `accuracy` (Tables 3, 4).

    Raises:
        ValueError: the table prints no averages.
        UserError: the file is damaged.
    """
    averages = _published_csv("averages.csv", folder)
    own = averages[averages["source"] == f"Table {table}"].reset_index(drop=True)
    if own.empty:
        raise ValueError(f"Table {table} prints no averages; {', '.join(map(str, averages['source'].unique()))} do.")
    quantity = own["quantity"].iloc[0]
    if quantity not in ("accuracy", "rank"):
        raise UserError(
            f"averages.csv, {own['source'].iloc[0]}: the quantity {quantity!r} is neither accuracy nor rank."
        )
    value = own["value"] / 100 if quantity == "accuracy" else own["value"]
    return own.drop(columns=["quantity", "value"]).assign(**{quantity: value})


def _published_csv(name: str, folder: str | Path | None) -> pd.DataFrame:
    path = (project_root() / "results" / "published" if folder is None else Path(folder)) / name
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing. The paper's tables come with the project's source: "
            "work in a clone of it, or name the folder that holds them."
        )
    numbers = ["value"] if name == "averages.csv" else ["accuracy", "interval"]
    return read_csv(path, numbers, ["model", "source", *["domain", "quantity"] * (name == "averages.csv")])
