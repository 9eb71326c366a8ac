"""The labels as one HTML page to look at: the images of each class, from the most to the least certain."""

from pathlib import Path

from jinja2 import Template

from tcnaps.config import UserError
from tcnaps_suite.labelling.classify import Labels, expected
from tcnaps_suite.labelling.embedding import read_image
from tcnaps_suite.widgets.pictures import image_address

SHOWN = 16  # images in each row
SIDE = 112  # pixels of a thumbnail


def contact_sheet(folder: Path, labels: Labels) -> str:
    """The page. Images that look like no class are in a pile of their own, and not among those of their label."""
    examples, table = labels.examples, labels.table.assign(verdict=labels.verdicts)
    by_certainty, piles = table.sort_values("probability", ascending=False, kind="stable"), []
    foreign = by_certainty["none_of_these"] != ""
    for label in sorted({*examples["label"], *by_certainty["label"][~foreign]}):
        labelled = by_certainty[(by_certainty["label"] == label) & ~foreign]
        given = examples[examples["label"] == label]
        rows = {"Given": given, "Most certain": labelled[:SHOWN], "Least certain": labelled[SHOWN:][::-1]}
        piles.append((f"{label or 'No label'}: {len(labelled)} images", rows))
    if foreign.any():
        heading = f"None of these? {foreign.sum()} images unlike every class, with their best guesses"
        piles.append((heading, {"": by_certainty[foreign][::-1]}))
    page = Template(Path(__file__).with_name("contact-sheet.html").read_text(encoding="utf-8"), autoescape=True)
    facts = {"title": f"Labels of {folder.resolve().name}", "note": expected(labels.trust)}
    return page.render(facts, piles=piles, shown=SHOWN, thumbnail=lambda file: thumbnail(folder / file))


def thumbnail(file: Path) -> str:
    """A small picture as an address; "" where the file can't be read: features may be of images elsewhere."""
    try:
        return image_address(read_image(file, 2 * SIDE), SIDE)
    except (UserError, OSError):
        return ""
