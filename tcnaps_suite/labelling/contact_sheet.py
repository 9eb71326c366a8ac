"""The labels as one HTML page to look at: the images of each class, from the most to the least certain."""

import html
from pathlib import Path

import pandas as pd

from tcnaps.config import UserError
from tcnaps.data.decoding import to_rgb
from tcnaps.data.listing import open_regular
from tcnaps_suite.widgets.pictures import image_address

SHOWN = 16  # images in each row
SIDE = 112  # pixels of a thumbnail
PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>.contact-sheet {{font-family: sans-serif; margin: 24px}}
.contact-sheet section {{display: flex; flex-wrap: wrap; gap: 8px}}
.contact-sheet figure {{margin: 0; width: 116px; font-size: 12px; overflow-wrap: anywhere}}</style>
<div class="contact-sheet"><h1>{title}</h1>
<p>A percentage is the probability of the label above the picture, or of the best guess where there is no label. It
tells sure images from unsure ones; it is not calibrated.</p>
{body}
</div></html>
"""


def contact_sheet(folder: Path, examples: pd.DataFrame, labels: pd.DataFrame) -> str:
    """The page.

    Args:
        examples: `file` (relative to `folder`) and `label` of the images that had a label.
        labels: `file`, `label`, `probability` and `runner_up` of the others; an empty label is an abstention.
    """
    parts, by_certainty = [], labels.sort_values("probability", ascending=False, kind="stable")
    for label in sorted({*examples["label"], *labels["label"]}):
        labelled = by_certainty[by_certainty["label"] == label]
        rows = {
            "Given": examples[examples["label"] == label],
            "Most certain": labelled[:SHOWN],
            "Least certain": labelled[SHOWN:][::-1],
        }
        parts.append(f"<h2>{html.escape(label or 'No label')}: {len(labelled)} images</h2>")
        for heading, images in rows.items():
            if len(images):
                figures = "".join(_figure(folder, image) for image in images[:SHOWN].itertuples())
                parts.append(f"<h3>{heading}</h3><section>{figures}</section>")
    return PAGE.format(title=html.escape(f"Labels of {folder.resolve().name}"), body="\n".join(parts))


def _figure(folder: Path, image: tuple) -> str:
    caption = html.escape(Path(image.file).name)
    if hasattr(image, "runner_up"):
        caption += f"<br>{image.probability:.0%}, or {html.escape(image.runner_up)}"
    try:
        with open_regular(folder / image.file) as file:
            pixels = to_rgb(file.read(), fast=False, orient=True)
        picture = f'<img alt="" src="{image_address(pixels, SIDE)}">'
    except (UserError, OSError):  # features from elsewhere may be of images that can't be read here
        picture = "(no picture)"
    return f'<figure title="{html.escape(image.file)}">{picture}<figcaption>{caption}</figcaption></figure>'
