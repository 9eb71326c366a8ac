"""Tables to read, from tidy summaries: wide frames of text in percent, and their HTML.

A wide table marks bold text as Markdown does, `**58.8±1.1**`; `html` turns it into bold type.
"""

from collections.abc import Sequence
from html import escape

import pandas as pd


def cell(value: float, interval: float | None = None, bold: bool = False, signed: bool = False, digits: int = 1) -> str:
    """A fraction in percent with its interval: "58.8±1.1", or "+3.1±0.8" if signed. nan gives an empty cell.

    Example:
        >>> cell(0.5876, 0.0112), cell(0.031, 0.008, bold=True, signed=True)
        ('58.8±1.1', '**+3.1±0.8**')
    """
    if pd.isna(value):
        return ""
    text = points(value, digits) if signed else f"{100 * value:.{digits}f}"
    if interval is not None and not pd.isna(interval):
        text += f"±{100 * interval:.{digits}f}"
    return f"**{text}**" if bold else text


def points(value: float, digits: int = 1) -> str:
    """A difference of fractions in points, with its sign. What rounds to 0 is written +0.0, never −0.0.

    Example:
        >>> points(0.031), points(-0.031), points(-0.0001)
        ('+3.1', '−3.1', '+0.0')
    """
    return f"{round(100 * value, digits) + 0.0:+.{digits}f}".replace("-", "−")


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
        summary: from `accuracy_summary`, of one evaluation; of paired episodes with value "difference".
        averages, ranks: from `domain_averages` and `average_ranks`.
        bold: per row of the summary, from `best`. Default: a column `bold`, which averages and ranks may have, too.
    """
    summary = summary if bold is None else summary.assign(bold=list(bold))
    table = _wide(summary[method], summary["dataset"], _texts(summary, value))
    if averages is not None:
        table = table.join(_wide(averages[method], "Mean " + averages["domain"], _texts(averages, value)))
    if ranks is not None:
        texts = [f"**{r:.1f}**" if b else f"{r:.1f}" for r, b in zip(ranks["rank"], _column(ranks, "bold"))]
        table = table.join(_wide(ranks[method], "Rank " + ranks["domain"], texts))
    return table.fillna("").rename_axis(index=method, columns=None)


def published_table(
    rows: pd.DataFrame, averages: pd.DataFrame | None = None, models: Sequence[str] | None = None
) -> pd.DataFrame:
    """One of the paper's tables in the layout of `accuracy_table`, with the printed averages and bold type.

    Args come from `read_published` and `read_published_averages`; `models` are the rows to show, by default all.
    """
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

    def _repr_html_(self) -> str:
        return str(self)


def html(tables: pd.DataFrame | dict[str, pd.DataFrame]) -> Html:
    """The HTML of one table, or of several with captions. `**…**` becomes bold type."""
    blocks = tables if isinstance(tables, dict) else {"": tables}
    parts = []
    for caption, table in blocks.items():
        # Empty names keep pandas from writing a second row of headings.
        shown = table.map(_bold_html).rename(index=escape, columns=escape).rename_axis(index=None, columns=None)
        title = f"<caption style='caption-side: top; text-align: left'>{escape(caption)}</caption>" if caption else ""
        parts.append(shown.to_html(escape=False, border=0).replace("<thead>", title + "<thead>", 1))
    return Html("\n".join(parts))


def _column(frame: pd.DataFrame, name: str) -> pd.Series | list[None]:
    return frame.get(name, [None] * len(frame))


def _texts(frame: pd.DataFrame, value: str) -> list[str]:
    columns = frame[value], _column(frame, "interval"), _column(frame, "bold")
    return [cell(number, half, bool(bold), signed=value == "difference") for number, half, bold in zip(*columns)]


def _wide(rows: pd.Series, columns: pd.Series, texts: Sequence[str]) -> pd.DataFrame:
    """A frame of the texts; rows and columns are in order of appearance."""
    frame = pd.DataFrame({"row": rows.to_numpy(), "column": columns.to_numpy(), "text": texts})
    wide = frame.pivot(index="row", columns="column", values="text")
    return wide.loc[frame["row"].unique(), frame["column"].unique()]


def _bold_html(text: object) -> str:
    text = escape(str(text))
    return f"<b>{text[2:-2]}</b>" if text.startswith("**") and text.endswith("**") else text
