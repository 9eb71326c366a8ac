"""Tidy summaries → tables to read: wide frames of text in percent, as Markdown or HTML, and small CSV files.

In a wide table bold is written as Markdown writes it, `**58.8±1.1**`; `html` turns it into bold type.
"""

import html as escaping
import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tcnaps.config import project_root

PUBLISHED_FILES = {
    1: "table-1-meta-dataset.csv",
    2: "table-2-mini-tiered-imagenet.csv",
    3: "table-3-ablations.csv",
    4: "table-4-refinement-steps.csv",
}
# What the official Meta-Dataset calls its datasets → what the paper's tables call them.
PAPER_NAMES = {
    "ilsvrc_2012": "ImageNet",
    "omniglot": "Omniglot",
    "aircraft": "Aircraft",
    "cu_birds": "Birds",
    "dtd": "DTD",
    "quickdraw": "QuickDraw",
    "fungi": "Fungi",
    "vgg_flower": "Flower",
    "traffic_sign": "Signs",
    "mscoco": "MSCOCO",
    "mnist": "MNIST",
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
}


def read_published(table: int, folder: str | Path | None = None) -> pd.DataFrame:
    """Rows of one of the paper's Tables 1 to 4, accuracies and intervals in [0, 1].

    Args:
        folder: where the transcribed tables lie; the default is results/published in the project.

    Raises:
        ValueError: the paper's results fill Tables 1 to 4 only.
        FileNotFoundError: the folder has no such table.
    """
    if table not in PUBLISHED_FILES:
        raise ValueError(f"There is no published table {table}; there are Tables 1 to 4.")
    frame = _published_csv(PUBLISHED_FILES[table], folder)
    return frame.assign(accuracy=frame["accuracy"] / 100, interval=frame["interval"] / 100)


def read_published_averages(table: int, folder: str | Path | None = None) -> pd.DataFrame:
    """The printed summary columns: `model`, `domain`, and `rank` (Table 1) or `accuracy` (Tables 3, 4).

    Raises:
        ValueError: the table prints no averages.
    """
    averages = _published_csv("averages.csv", folder)
    own = averages[averages["source"] == f"Table {table}"].reset_index(drop=True)
    if own.empty:
        raise ValueError(f"Table {table} prints no averages; {', '.join(averages['source'].unique())} do.")
    quantity = own["quantity"].iloc[0]
    value = own["value"] / 100 if quantity == "accuracy" else own["value"]
    return own.drop(columns=["quantity", "value"]).assign(**{quantity: value})


def cell(value: float, interval: float | None = None, bold: bool = False, signed: bool = False) -> str:
    """A fraction as percent with its interval: "58.8±1.1", "+3.1±0.8" if signed; nan gives an empty cell."""
    if pd.isna(value):
        return ""
    text = f"{100 * value:{'+' if signed else ''}.1f}"
    if interval is not None and not pd.isna(interval):
        text += f"±{100 * interval:.1f}"
    return f"**{text}**" if bold else text


def accuracy_table(
    summary: pd.DataFrame,
    averages: pd.DataFrame | None = None,
    ranks: pd.DataFrame | None = None,
    bold: pd.Series | Sequence[bool] | None = None,
    method: str = "variant",
    value: str = "accuracy",
) -> pd.DataFrame:
    """One row per method, one column per dataset, then averages and ranks in-domain, out-of-domain and all.

    Args:
        summary: of `accuracy_summary` (or `paired_difference`, with value "difference"), one protocol.
        averages: of `domain_averages`. An `interval` is shown, and `bold` followed, where there is one.
        ranks: of `average_ranks`, `bold` likewise.
        bold: per row of the summary, of `best`.

    Raises:
        ValueError: a column is missing, or a method and dataset occur twice.
    """
    signed = value == "difference"
    if missing := [column for column in (method, "dataset", value, "interval") if column not in summary]:
        raise ValueError(f"The summary lacks column {', '.join(missing)}; it holds: {', '.join(summary.columns)}.")
    if summary.duplicated([method, "dataset"]).any():
        raise ValueError(f"A {method} and dataset occur more than once: pick one protocol for a table.")
    marks = [False] * len(summary) if bold is None else list(bold)
    entries = zip(summary[value], summary["interval"], marks, strict=True)
    texts = [cell(v, i, b, signed) for v, i, b in entries]
    table = _wide(summary[method], summary["dataset"], texts)
    if averages is not None:
        half_widths, marks = averages.get("interval", [None] * len(averages)), _marks(averages)
        texts = [cell(v, i, b, signed) for v, i, b in zip(averages[value], half_widths, marks, strict=True)]
        table = table.join(_wide(averages[method], "Mean " + averages["domain"], texts))
    if ranks is not None:
        entries = zip(ranks["rank"], _marks(ranks), strict=True)
        texts = [f"**{r:.1f}**" if b else f"{r:.1f}" for r, b in entries]
        table = table.join(_wide(ranks[method], "Rank " + ranks["domain"], texts))
    return table.fillna("").rename_axis(index=method, columns=None)


def published_table(table: int, models: Sequence[str] | None = None, folder: str | Path | None = None) -> pd.DataFrame:
    """One of the paper's tables as `accuracy_table` lays it out, with the printed averages and bold type.

    Args:
        models: the rows to show; the default is all.

    Raises:
        ValueError: the table has no such model.
    """
    rows = read_published(table, folder)
    if table == 2:
        setting = rows["way"].astype(str) + "-way " + rows["shot"].astype(str) + "-shot"
        rows = rows.assign(dataset=rows["benchmark"] + " " + setting)
        wide = accuracy_table(rows, bold=rows["bold"], method="model")
        wide.insert(0, "Transductive", rows.groupby("model")["transductive"].first())
    else:
        printed = read_published_averages(table, folder)
        extra = {"ranks": printed} if table == 1 else {"averages": printed}
        wide = accuracy_table(rows, bold=rows["bold"], method="model", **extra)
    unknown = [name for name in models or () if name not in wide.index]
    if unknown:
        raise ValueError(f"Table {table} has no row {', '.join(unknown)}; it has: {', '.join(wide.index)}.")
    return wide if models is None else wide.loc[list(models)]


def beside_published(ours: pd.DataFrame, published: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Our table and the paper's: one if the datasets are the same, else two, as their numbers don't compare.

    Returns:
        Caption → table.
    """
    ours = ours.rename(columns=PAPER_NAMES)
    own, theirs = ({c for c in table if not c.startswith(("Mean ", "Rank "))} for table in (ours, published))
    if own != theirs:
        return {"This study": ours, "Published, on the paper's own datasets": published}
    merged = pd.concat([ours, published.rename(index=lambda name: f"{name} (published)")]).fillna("")
    return {"This study and the published numbers": merged.rename_axis(index=ours.index.name)}


def markdown(table: pd.DataFrame, index: bool = True) -> str:
    """A pipe table for a README; the index is its first column."""
    frame = table.reset_index() if index else table
    lines = [list(map(str, frame.columns)), ["---"] * frame.shape[1], *frame.astype(str).to_numpy().tolist()]
    texts = (" | ".join(text.replace("|", "\\|") for text in line) for line in lines)
    return "".join(f"| {text} |\n" for text in texts)


class Html(str):
    """HTML that a notebook shows as such."""

    def _repr_html_(self) -> str:
        return str(self)


def html(tables: pd.DataFrame | dict[str, pd.DataFrame]) -> Html:
    """One table, or several under their captions, for a notebook; `**…**` becomes bold type."""
    blocks = tables if isinstance(tables, dict) else {"": tables}
    parts = []
    for caption, table in blocks.items():
        names = [table.index.name or "", *table.columns]
        head = "".join(f"<th>{escaping.escape(str(name))}</th>" for name in names)
        body = ""
        for name, row in zip(table.index, table.to_numpy().tolist(), strict=True):
            cells = "".join(f"<td>{_bold_html(text)}</td>" for text in row)
            body += f"<tr><th style='text-align:left'>{escaping.escape(str(name))}</th>{cells}</tr>"
        title = f"<caption style='text-align:left'>{escaping.escape(caption)}</caption>" if caption else ""
        parts.append(f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    return Html("\n".join(parts))


def write_csv(frame: pd.DataFrame, path: str | Path, float_format: str = "%.6g") -> Path:
    """Writes a small tidy table without its index; equal frames give equal bytes, nothing is half-written."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        frame.to_csv(partial, index=False, float_format=float_format, lineterminator="\n")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _published_csv(name: str, folder: str | Path | None) -> pd.DataFrame:
    path = (project_root() / "results" / "published" if folder is None else Path(folder)) / name
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing. The paper's tables come with the project's source: "
            "work in a clone of it, or name the folder that holds them."
        )
    return pd.read_csv(path)


def _marks(frame: pd.DataFrame) -> list[bool]:
    return list(frame["bold"]) if "bold" in frame else [False] * len(frame)


def _wide(rows: pd.Series, columns: pd.Series, texts: Sequence[str]) -> pd.DataFrame:
    """Texts by row and column, both in order of appearance."""
    frame = pd.DataFrame({"row": rows.to_numpy(), "column": columns.to_numpy(), "text": texts})
    wide = frame.pivot(index="row", columns="column", values="text")
    return wide.loc[frame["row"].unique(), frame["column"].unique()]


def _bold_html(text: object) -> str:
    text = escaping.escape(str(text))
    return f"<b>{text[2:-2]}</b>" if text.startswith("**") and text.endswith("**") else text
