"""The labels as one HTML page to look at: the images of each class, from the most to the least certain."""

import html
from pathlib import Path

import pandas as pd

from tcnaps.config import UserError
from tcnaps.data.decoding import to_rgb
from tcnaps.data.listing import open_regular
from tcnaps_suite.labelling.classify import Labels, expected
from tcnaps_suite.labelling.embedding import check_size
from tcnaps_suite.widgets.pictures import image_address

SHOWN = 16  # images in each row
SIDE = 112  # pixels of a thumbnail
PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>.contact-sheet {{font-family: sans-serif; margin: 1rem}}
.contact-sheet section {{display: flex; flex-wrap: wrap; gap: 8px}}
.contact-sheet figure {{margin: 0; width: 116px; font-size: 12px; overflow-wrap: anywhere}}
.contact-sheet .right {{outline: 3px solid #2a9d4a}} .contact-sheet .wrong {{outline: 3px solid #d62728}}</style>
<div class="contact-sheet"><h1>{title}</h1>
<p>{note}</p>
<p>A percentage is the probability of the label above the picture, or of the best guess where there is no label. The
frame of a picture says whether its label is right (green) or wrong (red), where the truth is known.</p>
{body}
</div></html>
"""


def contact_sheet(folder: Path, labels: Labels) -> str:
    """The page. Images that look like no class are in a pile of their own, and not among those of their label."""
    examples, shown = labels.examples, labels.table.assign(verdict=labels.verdicts)
    parts, by_certainty = [], shown.sort_values("probability", ascending=False, kind="stable")
    foreign = by_certainty["none_of_these"] != ""
    for label in sorted({*examples["label"], *by_certainty["label"][~foreign]}):
        labelled = by_certainty[(by_certainty["label"] == label) & ~foreign]
        rows = {
            "Given": examples[examples["label"] == label],
            "Most certain": labelled[:SHOWN],
            "Least certain": labelled[SHOWN:][::-1],
        }
        parts.append(f"<h2>{html.escape(label or 'No label')}: {len(labelled)} images</h2>")
        parts += [_row(folder, f"<h3>{heading}</h3>", images) for heading, images in rows.items() if len(images)]
    if foreign.any():
        heading = f"<h2>None of these?</h2><p>{foreign.sum()} images unlike every class, with their best guesses.</p>"
        parts.append(_row(folder, heading, by_certainty[foreign][::-1]))
    title = html.escape(f"Labels of {folder.resolve().name}")
    return PAGE.format(title=title, note=html.escape(expected(labels.trust)), body="\n".join(parts))


def _row(folder: Path, heading: str, images: pd.DataFrame) -> str:
    return f"{heading}<section>{''.join(_figure(folder, image) for image in images[:SHOWN].itertuples())}</section>"


def _figure(folder: Path, image: tuple) -> str:
    caption = html.escape(Path(image.file).name)
    if getattr(image, "corrected", ""):
        caption += "<br>corrected"
    elif hasattr(image, "runner_up"):
        guess = f"{html.escape(image.best_guess)} " if image.none_of_these else ""
        caption += f"<br>{guess}{image.probability:.0%}, or {html.escape(image.runner_up)}"
    address = thumbnail(folder / image.file)
    picture = f'<img class="{getattr(image, "verdict", "")}" alt="" src="{address}">' if address else "(no picture)"
    return f'<figure title="{html.escape(image.file)}">{picture}<figcaption>{caption}</figcaption></figure>'


def thumbnail(file: Path) -> str:
    """A small picture as an address; "" where the file can't be read: features may be of images elsewhere."""
    try:
        with open_regular(file) as opened:
            return image_address(to_rgb(opened.read(), check=check_size, side=2 * SIDE), SIDE)
    except (UserError, OSError):
        return ""
