"""What the explorer shows of an episode as HTML: its images with what is predicted for them, and its confusion matrix.

Tables rather than pictures: text stays sharp, can be selected and is read out, and a change costs little. Each class
has a letter and a colour. Signs tell right from wrong, never colour alone.
"""

import html
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex

from tcnaps.figures.clustering import class_colours
from tcnaps_suite.widgets.episode_table import Replayed, counted
from tcnaps_suite.widgets.pictures import chips, image_address, named
from tcnaps_suite.widgets.widget_base import table

MOST_SUPPORT = 10  # support images of a class that are shown
RIGHT, WRONG, CHANGED = "✓", "✗", "↻"
QUERIES = (
    f"Queries: {RIGHT} right, {WRONG} wrong (with the class predicted instead); responsibility of the prediction; "
    f"{CHANGED} changed in this step"
)
LOOK = """
.tcnaps-explorer .tcnaps-episodes select {font-family:var(--jp-code-font-family,monospace);}
.tcnaps-explorer .xheader {font-family:var(--jp-code-font-family,monospace);font-size:var(--jp-widgets-font-size,13px);
  white-space:pre;padding-left:6px;line-height:1.5;font-weight:bold;}
.tcnaps-explorer .xname {display:inline-block;max-width:160px;min-width:110px;overflow-wrap:anywhere;}
.tcnaps-explorer .xflow {display:flex;flex-wrap:wrap;gap:4px;}
.tcnaps-explorer .xitem {display:flex;flex-direction:column;align-items:center;font-size:11px;white-space:nowrap;
  min-width:calc(var(--side) + 6px);}
.tcnaps-explorer .xwrong {font-weight:bold;}
.tcnaps-explorer .widget-html-content {min-width:0;flex:1 1 auto;}
.tcnaps-explorer .ximage {width:var(--side);height:var(--side);border:3px solid #999;box-sizing:content-box;
  background-size:cover;}
.tcnaps-explorer .xwrong .ximage {border-style:dashed;}
.tcnaps-explorer .xquiet {color:var(--jp-ui-font-color2,#555);white-space:nowrap;}
.tcnaps-explorer .xmatrix td, .tcnaps-explorer .xmatrix th {text-align:center;padding:2px 3px;min-width:20px;}
.tcnaps-explorer .xmatrix td:first-child {text-align:left;white-space:nowrap;position:sticky;left:0;
  background:var(--jp-layout-color1,#fff);}
.tcnaps-explorer .xcell {display:block;}"""


class Drawer:
    """Tables of one episode. Colours and names of its classes are the same in all of them.

    Args:
        images: the episode's, or None where they can't be shown.
    """

    def __init__(self, names: Sequence[str], images: Replayed | None):
        self.names, self.images, self.chips = list(names), images, chips(names)
        self.frames = [to_hex(colour) for colour in class_colours(len(names))]
        labels = np.array([]) if images is None else images.support_labels
        self.support = [np.flatnonzero(labels == label)[:MOST_SUPPORT] for label in range(len(names))]  # those shown

    def style_sheet(self, name: str, size: int) -> str:
        """The look of the explorer with CSS class `name`, and the images, `size` pixels wide.

        The browser gets the images once; tables refer to them by class: `s3` is support image 3, `q3` query 3.
        """
        rules = [f".{name} {{--side:{size}px;}}"]
        if self.images is not None:
            kept = {f"s{number}": self.images.support_images[number] for number in np.concatenate(self.support)}
            kept |= {f"q{number}": image for number, image in enumerate(self.images.query_images)}
            rules += [
                f".{name} .{key} {{background-image:url({image_address(image)});}}" for key, image in kept.items()
            ]
        return f"<style>{LOOK}{chr(10).join(rules)}</style>"

    def sheet(self, found: pd.DataFrame) -> str:
        """Support images and queries of each class, with what is predicted for the queries.

        Args:
            found: of `episode_table.at_step`.
        """
        rows = []
        for label, own in found.groupby("label"):
            shot, recall = int(own["shot"].iloc[0]), own["right"].mean()
            about = f'<span class="xquiet">shot {shot} · recall {100 * recall:.0f}%</span>'
            queries = "".join(map(self._query, own.itertuples()))
            rows.append((f"{self._name(label)}<br>{about}", _flow(self._support(label, shot)), _flow(queries)))
        return table(pd.DataFrame(rows, columns=["Class", "Support images", QUERIES]), 640)

    def confusion(self, found: pd.DataFrame) -> str:
        """The confusion matrix: rows are classes, columns what their queries are taken for.

        Args:
            found: of `episode_table.at_step`.
        """
        labels = range(len(self.names))
        counts = pd.crosstab(found["label"], found["prediction"]).reindex(index=labels, columns=labels, fill_value=0)
        rows = [
            (self._name(label), *(_cell(label == k, int(n), int(own.sum())) for k, n in own.items()))
            for label, own in counts.iterrows()
        ]
        return table(pd.DataFrame(rows, columns=["Class ↓ taken for →", *self.chips]), 640, "xmatrix")

    def _name(self, label: int) -> str:
        return f'<span class="xname">{self.chips[label]} {named(self.names[label], 40)}</span>'

    def _support(self, label: int, shot: int) -> str:
        numbers = self.support[label]
        images = "".join(self._image(f"s{n}", label, f"Support image of {self.names[label]}") for n in numbers)
        rest = f"{'+' * (len(numbers) > 0)}{counted(shot - len(numbers), 'image')}"
        return images + f'<span class="xquiet">{rest}</span>' * (shot > len(numbers))

    def _query(self, query) -> str:
        verdict = "right" if query.right else f"wrong, it is {query.class_name}"
        title = f"Query {query.query}: {self.names[query.prediction]}, {query.confidence:.2f} ({verdict})"
        image = "" if self.images is None else self._image(f"q{query.query}", query.prediction, title)
        sign = RIGHT if query.right else f"{WRONG} {self.chips[query.prediction]}"
        changed = f" {CHANGED}" if query.changed else ""
        return (
            f'<div class="xitem{"" if query.right else " xwrong"}">{image}'
            f"<span>{sign} {query.confidence:.2f}{changed}</span></div>"
        )

    def _image(self, key: str, label: int, title: str) -> str:
        title, look = html.escape(title), f'style="border-color:{self.frames[label]}"'
        return f'<div class="ximage {key}" role="img" aria-label="{title}" title="{title}" {look}></div>'


def _cell(right: bool, n: int, total: int) -> str:
    if n == 0:
        return '<span class="xquiet">·</span>'
    colour, strength = "0,114,178" if right else "213,94,0", 0.12 + 0.5 * n / total
    return f'<b class="xcell" style="background:rgba({colour},{strength:.2f})">{n}</b>'


def _flow(items: str) -> str:
    return f'<div class="xflow">{items}</div>'
