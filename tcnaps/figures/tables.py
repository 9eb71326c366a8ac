"""Tables to read, from tidy summaries: wide frames of text in percent, and their HTML.

A wide table marks bold text as Markdown does, `**58.8±1.1**`; `html` turns it into bold type.
"""

import re
from collections.abc import Sequence
from html import escape

import pandas as pd

Extra = pd.DataFrame | None  # more columns of a table


def cell(value: float, interval: float | None = None, bold: bool = False, signed: bool = False, digits: int = 1) -> str:
    """A fraction in percent with its interval: "58.8±1.1", or "+3.1±0.8" if signed. nan gives an empty cell."""
    if pd.isna(value):
        return ""
    text = points(value, digits) if signed else f"{100 * value:.{digits}f}"
    if pd.notna(interval):
        text += f"±{100 * interval:.{digits}f}"
    return f"**{text}**" if bold else text


def points(value: float, digits: int = 1) -> str:
    """A difference of fractions in points, such as "−3.1". What rounds to 0 is written +0.0, never −0.0."""
    return f"{round(100 * value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def accuracy_table(
    summary: pd.DataFrame, averages: Extra = None, ranks: Extra = None, method: str = "variant", value: str = "accuracy"
) -> pd.DataFrame:
    """One row per method, one column per dataset, then averages and ranks in-domain, out-of-domain and all.

    The inputs come from `accuracy_summary` of one evaluation, `domain_averages` and `average_ranks`; for the value
    "difference", from the first two on paired episodes. Each may have a column `bold`, such as `best` gives.
    """
    table = _wide(summary[method], summary["dataset"], _texts(summary, value))
    if averages is not None:
        table = table.join(_wide(averages[method], "Mean " + averages["domain"], _texts(averages, value)))
    if ranks is not None:
        bold = ranks.get("bold", [False] * len(ranks))
        texts = [f"**{r:.1f}**" if b else f"{r:.1f}" for r, b in zip(ranks["rank"], bold)]
        table = table.join(_wide(ranks[method], "Rank " + ranks["domain"], texts))
    return table.fillna("").rename_axis(index=method, columns=None)


def published_table(rows: pd.DataFrame, averages: Extra = None, models: Sequence[str] | None = None) -> pd.DataFrame:
    """One of the paper's tables as an `accuracy_table`, from `read_published` and `read_published_averages`."""
    if "benchmark" in rows:
        setting = rows["way"].astype(str) + "-way " + rows["shot"].astype(str) + "-shot"
        rows = rows.assign(dataset=rows["benchmark"] + " " + setting)
    extra = {} if averages is None else {"ranks" if "rank" in averages else "averages": averages}
    wide = accuracy_table(rows, method="model", **extra)
    if "transductive" in rows:
        wide.insert(0, "Transductive", rows.groupby("model")["transductive"].first())
    return wide if models is None else wide.loc[list(models)]


class Html(str):
    """Text that a notebook displays as HTML."""

    _repr_html_ = str.__str__


def html(tables: pd.DataFrame | dict[str, pd.DataFrame]) -> Html:
    """The HTML of one table, or of several with captions. `**…**` becomes bold type."""
    parts = []
    for caption, table in (tables if isinstance(tables, dict) else {"": tables}).items():
        # Empty names keep pandas from writing a second row of headings.
        shown = table.rename(index=escape, columns=escape).rename_axis(index=None, columns=None)
        shown = shown.map(lambda text: re.sub(r"(?s)^\*\*(.*)\*\*$", r"<b>\1</b>", escape(str(text))))
        title = f"<caption style='caption-side: top; text-align: left'>{escape(caption)}</caption>" if caption else ""
        parts.append(shown.to_html(escape=False, border=0).replace("<thead>", title + "<thead>", 1))
    return Html("\n".join(parts))


def _texts(frame: pd.DataFrame, value: str) -> list[str]:
    cells = frame.assign(interval=frame.get("interval"), bold=frame.get("bold", False))[[value, "interval", "bold"]]
    return [cell(*one, signed=value == "difference") for one in cells.itertuples(index=False)]


def _wide(rows: pd.Series, columns: pd.Series, texts: Sequence[str]) -> pd.DataFrame:
    """A frame of the texts; rows and columns are in order of appearance."""
    return pd.Series(texts, [rows.to_numpy(), columns.to_numpy()]).unstack(sort=False)
