"""What the explorer shows of an episode as HTML: its images, its queries step by step, its confusion matrix.

Tables rather than pictures: text stays sharp, can be selected and is read out, and a change costs little. Classes
have a letter and a colour each; right and wrong are said by a sign, never by colour alone.
"""

import base64
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
from tcnaps.widgets.episode_figures import letter
from tcnaps.widgets.replay import Reopened

MOST_SUPPORT = 10  # images of a class that are shown
COLUMNS = 20  # thumbnails in a row of the sprite
RIGHT, WRONG, CHANGED = "✓", "✗", "↻"


@dataclass(frozen=True)
class Thumbnails:
    """All images of an episode in one picture, sent once; tables refer to its parts.

    Attributes:
        support: per label, the positions of the images shown; `left_out` says how many are not.
        query: the position of each query.
        address: the picture itself, as a data address.
        count: images in the picture.
    """

    support: tuple[tuple[int, ...], ...]
    left_out: tuple[int, ...]
    query: tuple[int, ...]
    address: str
    count: int

    @cached_property
    def key(self) -> str:
        """A class of their own: tables never show another episode's images, even while they change."""
        return f"x{zlib.crc32(self.address.encode()):08x}"


def thumbnails(episode: Reopened) -> Thumbnails:
    """The picture of an episode's images: PNG, or JPEG where the images are large."""
    labels, support, kept, left_out, count = episode.draw.support_labels, [], [], [], 0
    for label in range(len(episode.class_names)):
        own = np.flatnonzero(labels == label)
        left_out.append(max(0, len(own) - MOST_SUPPORT))
        own = own[:MOST_SUPPORT]
        support.append(tuple(range(count, count + len(own))))
        kept.append(own)
        count += len(own)
    images = np.concatenate([episode.support_images[np.concatenate(kept)], episode.query_images])
    size, rows = images.shape[1], -(-len(images) // COLUMNS)
    tiles = np.zeros((rows * COLUMNS, size, size, 3), dtype=np.uint8)
    tiles[: len(images)] = images
    mosaic = tiles.reshape(rows, COLUMNS, size, size, 3).swapaxes(1, 2).reshape(rows * size, COLUMNS * size, 3)
    kind, options = ("png", {"compress_level": 3}) if size <= 48 else ("jpeg", {"quality": 90})
    buffer = BytesIO()
    Image.fromarray(mosaic).save(buffer, format=kind, **options)
    address = f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
    return Thumbnails(tuple(support), tuple(left_out), tuple(range(count, len(images))), address, len(images))


def style_sheet(name: str, shown: Thumbnails | None, size: int) -> str:
    """The look of everything below an element of class `name`, and the images."""
    picture = (
        ""
        if shown is None
        else f""".{name} .{shown.key} {{background-image:url({shown.address});
  background-size:calc({COLUMNS}*var(--side)) calc({-(-shown.count // COLUMNS)}*var(--side));}}"""
    )
    return f"""<style>
.{name} .tcnaps-episodes select {{font-family:var(--jp-code-font-family,monospace);}}
.{name} .xheader {{font-family:var(--jp-code-font-family,monospace);font-size:var(--jp-widgets-font-size,13px);
  white-space:pre;padding-left:6px;line-height:1.5;font-weight:bold;}}
.{name} .xscroll {{overflow:auto;max-height:640px;line-height:1.25;color:var(--jp-ui-font-color1,#000);}}
.{name} .xtable {{border-collapse:collapse;font-size:12px;}}
.{name} .xtable th {{position:sticky;top:0;z-index:1;background:var(--jp-layout-color1,#fff);text-align:left;
  padding:4px 6px;border-bottom:1px solid var(--jp-border-color1,#bbb);}}
.{name} .xtable td {{padding:3px 6px;border-bottom:1px solid var(--jp-border-color2,#ddd);vertical-align:top;}}
.{name} .xname {{max-width:160px;min-width:110px;overflow-wrap:anywhere;}}
.{name} .xflow {{display:flex;flex-wrap:wrap;gap:4px;}}
.{name} .xitem {{display:flex;flex-direction:column;align-items:center;font-size:11px;white-space:nowrap;
  min-width:{size + 6}px;}}
.{name} .xwrong {{font-weight:bold;}}
.{name} .widget-html-content {{min-width:0;flex:1 1 auto;}}
.{name} .xwords {{line-height:1.4;}}
.{name} .xscroll {{--side:{size}px;}}
.{name} .xsteps {{--side:{size // 2}px;}}
.{name} .ximage {{width:var(--side);height:var(--side);border:3px solid #999;box-sizing:content-box;}}
{picture}
.{name} .xwrong .ximage {{border-style:dashed;}}
.{name} .xchip {{display:inline-block;min-width:14px;padding:0 3px;border-radius:3px;text-align:center;
  font-weight:bold;font-size:11px;box-shadow:inset 0 0 0 1px rgba(128,128,128,.5);}}
.{name} .xline {{white-space:nowrap;}}
.{name} .xquiet {{color:var(--jp-ui-font-color2,#555);}}
.{name} .xsteps td, .{name} .xsteps th {{white-space:nowrap;padding:2px 5px;vertical-align:middle;}}
.{name} .xsteps td.xname {{white-space:normal;max-width:150px;}}
.{name} .xtable .xnow {{border-left:2px solid currentColor;border-right:2px solid currentColor;}}
.{name} .xmatrix td, .{name} .xmatrix th {{text-align:center;padding:2px 3px;min-width:20px;}}
.{name} .xmatrix td.xname {{text-align:left;white-space:nowrap;overflow:hidden;text-overflow:ellipsis;
  max-width:220px;position:sticky;left:0;background:var(--jp-layout-color1,#fff);}}
</style>"""


class Drawer:
    """Tables of one episode. Colours and names of its classes are the same in all of them."""

    def __init__(self, names: Sequence[str], shown: Thumbnails | None):
        self.names, self.shown = list(names), shown
        colours = class_colours(len(names))
        self.frames = [to_hex(colour) for colour in colours]
        self.chips = [_chip(name, label, colour) for label, (name, colour) in enumerate(zip(names, colours))]

    def sheet(self, found: pd.DataFrame, recalls: pd.DataFrame) -> str:
        """Support images and queries of each class, with what is predicted for the queries.

        Args:
            found: of `episode_rows.at_step`.
            recalls: of `episode_rows.recall_by_class`.
        """
        rows = []
        for row in recalls.itertuples():
            support = "".join(
                self._image(p, row.label, f"Support image of {row.class_name}")
                for p in (self.shown.support[row.label] if self.shown else ())
            )
            left_out = self.shown.left_out[row.label] if self.shown else row.shot
            more = (
                f'<span class="xquiet">{"+" if self.shown else ""}{left_out}{" more" if self.shown else " images"}'
                "</span>"
                if left_out
                else ""
            )
            own = found[found["label"] == row.label]
            queries = "".join(self._query(query) for query in own.itertuples())
            rows.append(
                f'<tr><td class="xname">{self.chips[row.label]} {html.escape(row.class_name)}<br>'
                f'<span class="xquiet xline">shot {row.shot} · recall {100 * row.recall:.0f}%</span></td>'
                f'<td><div class="xflow">{support}{more}</div></td><td><div class="xflow">{queries}</div></td></tr>'
            )
        return _scroll(
            '<table class="xtable"><thead><tr><th>Class</th><th>Support images</th><th>Queries: '
            f"{RIGHT} right, {WRONG} wrong (the class predicted instead); its responsibility; {CHANGED} changed in "
            f"this step</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
        )

    def steps(self, found: pd.DataFrame, now: int, stop: int) -> str:
        """A row per query, a column per step.

        Args:
            found: of `episode_rows.queries`, of some queries.
            now: the step that is shown elsewhere.
            stop: the step at which the variant stops.
        """
        if found.empty:
            return words("No such query in this episode.")
        steps = sorted(found["step"].unique())
        heads = "".join(f'<th class="{_now(t == now)}">{t}{" ■" if t == stop else ""}</th>' for t in steps)
        rows = []
        for query, own in found.groupby("query", sort=True):
            label = int(own["label"].iloc[0])
            image = self._image(self.shown.query[query], label, f"Query {query}") if self.shown else ""
            cells = "".join(
                f'<td class="{_now(r.step == now)}{"" if r.right else " xwrong"}" title="{self._words(r)}">'
                f"{self.chips[r.prediction]} {RIGHT if r.right else WRONG}<br>{r.confidence:.2f}"
                f"{f' {CHANGED}' if r.changed else ''}</td>"
                for r in own.itertuples()
            )
            rows.append(
                f"<tr><td>{query}</td><td>{image}</td><td class='xname'>{self.chips[label]} "
                f"{html.escape(self.names[label])}</td>{cells}</tr>"
            )
        return _scroll(
            f'<table class="xtable xsteps"><thead><tr><th>Query</th><th></th><th>Its class</th>{heads}</tr></thead>'
            f"<tbody>{''.join(rows)}</tbody></table>"
        ) + words(
            f"Columns: the class predicted after each refinement step, and its responsibility. ■ where the "
            f"variant stops; {CHANGED} another class than in the step before. The step chosen is framed."
        )

    def confusion(self, counts: pd.DataFrame, mistakes: pd.DataFrame) -> str:
        """Rows are classes, columns what their queries are taken for.

        Args:
            counts: of `episode_rows.confusion`.
            mistakes: of `episode_rows.mistakes`.
        """
        heads = "".join(
            f'<th title="{html.escape(self.names[k], quote=True)}">{self.chips[k]}</th>' for k in counts.columns
        )
        rows = []
        for label, own in counts.iterrows():
            name = html.escape(self.names[label], quote=True)
            cells = "".join(self._cell(label, k, int(n), int(own.sum())) for k, n in own.items())
            rows.append(f'<tr><td class="xname" title="{name}">{self.chips[label]} {name}</td>{cells}</tr>')
        most = "; ".join(
            f"{r.n} of {self.names[r.label]} for {self.names[r.prediction]}" for r in mistakes.head(3).itertuples()
        )
        found = f"Most often taken for another class: {most}." if most else "Every query is right."
        return words(found) + _scroll(
            '<table class="xtable xmatrix"><thead><tr><th style="text-align:left">Class ↓ taken for →</th>'
            f"{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        )

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
            f"{query.confidence:.2f} ({verdict}{changed})",
            quote=True,
        )

    def _image(self, position: int, label: int, title: str) -> str:
        x, y = position % COLUMNS, position // COLUMNS
        title, colour = html.escape(title, quote=True), self.frames[label]
        place = f"calc(-{x}*var(--side)) calc(-{y}*var(--side))"
        return (
            f'<div class="ximage {self.shown.key}" role="img" aria-label="{title}" title="{title}" '
            f'style="background-position:{place};border-color:{colour}"></div>'
        )

    def _cell(self, label: int, prediction: int, n: int, total: int) -> str:
        if n == 0:
            return '<td class="xquiet">·</td>'
        tint = ("0,114,178" if label == prediction else "213,94,0", 0.12 + 0.5 * n / total)
        title = html.escape(
            f"{n} of {total} queries of {self.names[label]} are taken for {self.names[prediction]}", quote=True
        )
        return f'<td style="background:rgba({tint[0]},{tint[1]:.2f})" title="{title}"><b>{n}</b></td>'


def _chip(name: str, label: int, colour: np.ndarray) -> str:
    """A class's letter on its colour."""
    dark = float(colour @ [0.299, 0.587, 0.114]) < 0.5  # perceived lightness, for the letter to stand out
    return (
        f'<span class="xchip" style="background:{to_hex(colour)};color:{"#fff" if dark else "#000"}" '
        f'title="{html.escape(name, quote=True)}">{letter(label)}</span>'
    )


def words(text: str) -> str:
    """A paragraph."""
    return f'<div class="xwords">{html.escape(text)}</div>'


def _scroll(table: str) -> str:
    return f'<div class="xscroll" tabindex="0">{table}</div>'


def _now(shown: bool | np.bool_) -> str:
    return "xnow" if shown else ""
