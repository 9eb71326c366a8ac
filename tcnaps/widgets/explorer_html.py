"""What the explorer shows of an episode as HTML: its images with what is predicted for them, and its confusion matrix.

Tables rather than pictures: text stays sharp, can be selected and is read out, and a change costs little. Each class
has a letter and a colour. Signs tell right from wrong, never colour alone.
"""

import html
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex
from PIL import Image

from tcnaps.figures.clustering import class_colours
from tcnaps.widgets.episode_table import letter
from tcnaps.widgets.pictures import data_address, readable_on
from tcnaps.widgets.replay import Replayed

MOST_SUPPORT = 10  # support images of a class that are shown
COLUMNS = 20  # thumbnails in a row of the mosaic
RIGHT, WRONG, CHANGED = "✓", "✗", "↻"
LOOK = """
.tcnaps-explorer .tcnaps-episodes select {font-family:var(--jp-code-font-family,monospace);}
.tcnaps-explorer .xheader {font-family:var(--jp-code-font-family,monospace);font-size:var(--jp-widgets-font-size,13px);
  white-space:pre;padding-left:6px;line-height:1.5;font-weight:bold;}
.tcnaps-explorer .xscroll {overflow:auto;max-height:640px;line-height:1.25;color:var(--jp-ui-font-color1,#000);}
.tcnaps-explorer .xtable {border-collapse:collapse;font-size:12px;}
.tcnaps-explorer .xtable th {position:sticky;top:0;z-index:1;background:var(--jp-layout-color1,#fff);text-align:left;
  padding:4px 6px;border-bottom:1px solid var(--jp-border-color1,#bbb);}
.tcnaps-explorer .xtable td {padding:3px 6px;border-bottom:1px solid var(--jp-border-color2,#ddd);vertical-align:top;}
.tcnaps-explorer .xname {max-width:160px;min-width:110px;overflow-wrap:anywhere;}
.tcnaps-explorer .xflow {display:flex;flex-wrap:wrap;gap:4px;}
.tcnaps-explorer .xitem {display:flex;flex-direction:column;align-items:center;font-size:11px;white-space:nowrap;
  min-width:calc(var(--side) + 6px);}
.tcnaps-explorer .xwrong {font-weight:bold;}
.tcnaps-explorer .widget-html-content {min-width:0;flex:1 1 auto;}
.tcnaps-explorer .xwords {line-height:1.4;}
.tcnaps-explorer .ximage {width:var(--side);height:var(--side);border:3px solid #999;box-sizing:content-box;}
.tcnaps-explorer .xwrong .ximage {border-style:dashed;}
.tcnaps-explorer .xchip {display:inline-block;min-width:14px;padding:0 3px;border-radius:3px;text-align:center;
  font-weight:bold;font-size:11px;box-shadow:inset 0 0 0 1px rgba(128,128,128,.5);}
.tcnaps-explorer .xline {white-space:nowrap;}
.tcnaps-explorer .xquiet {color:var(--jp-ui-font-color2,#555);}
.tcnaps-explorer .xmatrix td, .tcnaps-explorer .xmatrix th {text-align:center;padding:2px 3px;min-width:20px;}
.tcnaps-explorer .xmatrix td.xname {text-align:left;white-space:nowrap;overflow:hidden;text-overflow:ellipsis;
  max-width:220px;position:sticky;left:0;background:var(--jp-layout-color1,#fff);}"""


@dataclass(frozen=True)
class Thumbnails:
    """All images of an episode in one mosaic, sent to the browser once; tables refer to its parts.

    Attributes:
        support: by label, the positions of the images that are shown; `left_out` says how many are not.
        query: the position of each query.
        address: the mosaic itself, as a data address.
        count: the number of images in it.
    """

    support: tuple[tuple[int, ...], ...]
    left_out: tuple[int, ...]
    query: tuple[int, ...]
    address: str
    count: int

    @cached_property
    def key(self) -> str:
        """A CSS class of its own, so that tables never show another episode's images, even while they change."""
        return f"x{zlib.crc32(self.address.encode()):08x}"


def thumbnails(episode: Replayed) -> Thumbnails:
    """The mosaic of an episode's images: PNG, or JPEG where the images are large."""
    labels = episode.draw.support_labels
    of_class = [np.flatnonzero(labels == label) for label in range(len(episode.class_names))]
    kept = [own[:MOST_SUPPORT] for own in of_class]
    ends = np.cumsum([0, *map(len, kept)]).tolist()
    images = np.concatenate([episode.support_images[np.concatenate(kept)], episode.query_images])
    size, rows = images.shape[1], -(-len(images) // COLUMNS)
    tiles = np.zeros((rows * COLUMNS, size, size, 3), dtype=np.uint8)
    tiles[: len(images)] = images
    mosaic = tiles.reshape(rows, COLUMNS, size, size, 3).swapaxes(1, 2).reshape(rows * size, COLUMNS * size, 3)
    kind, options = ("png", {"compress_level": 3}) if size <= 48 else ("jpeg", {"quality": 90})
    buffer = BytesIO()
    Image.fromarray(mosaic).save(buffer, format=kind, **options)
    return Thumbnails(
        support=tuple(tuple(range(*ends[k : k + 2])) for k in range(len(kept))),
        left_out=tuple(len(own) - len(few) for own, few in zip(of_class, kept)),
        query=tuple(range(ends[-1], len(images))),
        address=data_address(buffer.getvalue(), f"image/{kind}"),
        count=len(images),
    )


def style_sheet(name: str, shown: Thumbnails | None, size: int) -> str:
    """The look of the explorer with CSS class `name`, and its images, `size` pixels wide."""
    rows = 0 if shown is None else -(-shown.count // COLUMNS)
    mosaic = (
        f"""
.{name} .{shown.key} {{background-image:url({shown.address});
  background-size:calc({COLUMNS}*var(--side)) calc({rows}*var(--side));}}"""
        if shown
        else ""
    )
    sides = f"\n.{name} .xscroll {{--side:{size}px;}}"
    return f"<style>{LOOK}{sides}{mosaic}</style>"


class Drawer:
    """Tables of one episode. Colours and names of its classes are the same in all of them.

    Args:
        shown: the episode's images, or None where there are none.
    """

    def __init__(self, names: Sequence[str], shown: Thumbnails | None):
        self.names, self.shown = list(names), shown
        colours = class_colours(len(names))
        self.frames = [to_hex(colour) for colour in colours]
        self.chips = [
            f'<span class="xchip" style="background:{to_hex(colour)};color:{readable_on(colour)}" '
            f'title="{html.escape(name)}">{letter(label)}</span>'
            for label, (name, colour) in enumerate(zip(names, colours))
        ]

    def sheet(self, found: pd.DataFrame, recalls: pd.DataFrame) -> str:
        """Support images and queries of each class, with what is predicted for the queries.

        Args:
            found: of `episode_table.at_step`.
            recalls: of `episode_table.recall_by_class`.
        """
        rows = []
        for row in recalls.itertuples():
            own = found[found["label"] == row.label]
            queries = "".join(self._query(query) for query in own.itertuples())
            rows.append(
                f'<tr><td class="xname">{self.chips[row.label]} {html.escape(row.class_name)}<br>'
                f'<span class="xquiet xline">shot {row.shot} · recall {100 * row.recall:.0f}%</span></td>'
                f'<td><div class="xflow">{self._support(row)}</div></td>'
                f'<td><div class="xflow">{queries}</div></td></tr>'
            )
        return _table(
            f"<th>Class</th><th>Support images</th><th>Queries: {RIGHT} right, {WRONG} wrong (with the class predicted "
            f"instead); responsibility of the prediction; {CHANGED} changed in this step</th>",
            rows,
        )

    def confusion(self, counts: pd.DataFrame, mistakes: pd.DataFrame) -> str:
        """The confusion matrix: rows are classes, columns what their queries are taken for.

        Args:
            counts: of `episode_table.confusion`.
            mistakes: of `episode_table.mistakes`.
        """
        heads = "".join(f'<th title="{html.escape(self.names[k])}">{self.chips[k]}</th>' for k in counts.columns)
        rows = []
        for label, own in counts.iterrows():
            name = html.escape(self.names[label])
            cells = "".join(self._cell(label, k, int(n), int(own.sum())) for k, n in own.items())
            rows.append(f'<tr><td class="xname" title="{name}">{self.chips[label]} {name}</td>{cells}</tr>')
        most = "; ".join(
            f"{r.n} of {self.names[r.label]} for {self.names[r.prediction]}" for r in mistakes.head(3).itertuples()
        )
        found = f"Most often taken for another class: {most}." if most else "Every query is right."
        heads = f'<th style="text-align:left">Class ↓ taken for →</th>{heads}'
        return words(found) + _table(heads, rows, "xmatrix")

    def _support(self, row) -> str:
        if self.shown is None:
            return f'<span class="xquiet">{row.shot} image{"s" * (row.shot > 1)}</span>'
        title, left_out = f"Support image of {row.class_name}", self.shown.left_out[row.label]
        images = "".join(self._image(position, row.label, title) for position in self.shown.support[row.label])
        return images + (f'<span class="xquiet">+{left_out} more</span>' if left_out else "")

    def _query(self, query) -> str:
        title = f"Query {query.query}, framed in the colour of {query.predicted}"
        image = self._image(self.shown.query[query.query], query.prediction, title) if self.shown else ""
        sign = RIGHT if query.right else f"{WRONG} {self.chips[query.prediction]}"
        changed = f" {CHANGED}" if query.changed else ""
        return (
            f'<div class="xitem{"" if query.right else " xwrong"}" title="{self._words(query)}">{image}'
            f"<span>{sign} {query.confidence:.2f}{changed}</span></div>"
        )

    def _words(self, query) -> str:
        """One prediction in words."""
        verdict = "right" if query.right else f"wrong, it is {query.class_name}"
        changed = ", changed in this step" if query.changed else ""
        return html.escape(
            f"Query {query.query}, step {query.step}: {query.predicted}, responsibility "
            f"{query.confidence:.2f} ({verdict}{changed})"
        )

    def _image(self, position: int, label: int, title: str) -> str:
        x, y = position % COLUMNS, position // COLUMNS
        title, colour = html.escape(title), self.frames[label]
        place = f"calc(-{x}*var(--side)) calc(-{y}*var(--side))"
        return (
            f'<div class="ximage {self.shown.key}" role="img" aria-label="{title}" title="{title}" '
            f'style="background-position:{place};border-color:{colour}"></div>'
        )

    def _cell(self, label: int, prediction: int, n: int, total: int) -> str:
        if n == 0:
            return '<td class="xquiet">·</td>'
        tint = ("0,114,178" if label == prediction else "213,94,0", 0.12 + 0.5 * n / total)
        title = html.escape(f"{n} of {total} queries of {self.names[label]} are taken for {self.names[prediction]}")
        return f'<td style="background:rgba({tint[0]},{tint[1]:.2f})" title="{title}"><b>{n}</b></td>'


def words(text: str) -> str:
    """A paragraph."""
    return f'<div class="xwords">{html.escape(text)}</div>'


def _table(heads: str, rows: Sequence[str], css_class: str = "") -> str:
    return (
        f'<div class="xscroll" tabindex="0"><table class="xtable {css_class}"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
