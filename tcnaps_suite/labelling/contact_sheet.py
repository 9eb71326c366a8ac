"""What was labelled, to look at: one HTML page, per class the labelled images, the most and the least certain ones."""

import base64
import html
import io
from pathlib import Path

import pandas as pd
from PIL import ImageOps

from tcnaps.config import UserError
from tcnaps.data.decoding import to_rgb
from tcnaps.figures.tables import Html

SHOWN = 16  # images in each row
SIDE = 112  # pixels of a thumbnail
PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body {{font-family: sans-serif; margin: 24px}} section {{display: flex; flex-wrap: wrap; gap: 8px}}
figure {{margin: 0; width: 116px; font-size: 12px; overflow-wrap: anywhere}} h3 {{font-size: 14px; margin: 12px 0 4px}}
</style><h1>{title}</h1>
{body}
</html>
"""


def contact_sheet(folder: Path, examples: pd.DataFrame, found: pd.DataFrame) -> str:
    """The page.

    Args:
        examples: `file` (relative to `folder`) and `label` of the images that had a label.
        found: `file`, `label`, `probability` and `runner_up` of the others; an empty label is an abstention.
    """
    parts, certain = [], found.sort_values("probability", ascending=False, kind="stable")
    for label in sorted({*examples["label"], *found["label"]}):
        own = certain[certain["label"] == label]
        parts.append(f"<h2>{html.escape(label or 'No label')}: {len(own)} images</h2>")
        given = examples[examples["label"] == label]
        for heading, rows in {"Given": given, "Most certain": own, "Least certain": own[SHOWN:][::-1]}.items():
            if len(rows):
                figures = "".join(_figure(folder, row) for row in rows[:SHOWN].itertuples())
                parts.append(f"<h3>{heading}</h3><section>{figures}</section>")
    return PAGE.format(title=html.escape(f"Labels of {folder.resolve().name}"), body="\n".join(parts))


def in_frame(page: str, height: int = 600) -> Html:
    """The page inside a notebook, `height` pixels high, with its styles to itself."""
    frame = f'<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: {height}px; border: 0"></iframe>'
    return Html(f"<div>{frame}</div>")


def _figure(folder: Path, row: tuple) -> str:
    caption = html.escape(Path(row.file).name)
    if hasattr(row, "runner_up"):
        caption += f"<br>{row.probability:.0%}, or {html.escape(row.runner_up)}"
    picture = _thumbnail(folder / row.file)
    return f'<figure title="{html.escape(row.file)}">{picture}<figcaption>{caption}</figcaption></figure>'


def _thumbnail(file: Path) -> str:
    try:
        image = ImageOps.contain(to_rgb(file.read_bytes(), fast=False, orient=True), (SIDE, SIDE))
    except (UserError, OSError):  # features from elsewhere may be of images that can't be read here
        return "(no picture)"
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=85)
    return f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}">'
