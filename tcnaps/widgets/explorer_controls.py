"""The explorer's controls, and what they offer."""

from collections.abc import Mapping

import ipywidgets
import pandas as pd

from tcnaps.config import Study
from tcnaps.widgets.controls import button, menu, offer, range_slider, refit, slider, styled, text
from tcnaps.widgets.explorer_data import SORTS, points, variants_of

MOST_LISTED = 500  # episodes in the list; the filters reach the others
TABS = ("Images", "Confusion")
IMAGES, CONFUSION = range(len(TABS))
COLUMNS = ("dataset", "episode", "way", "shots", "queries")  # of the list, before the variants'
ALL = ("domain", "all")
TOOLTIPS = {
    "evaluation": "The evaluation whose episodes are listed",
    "better": "The variant to look at",
    "than": "The variant it is compared with",
    "limits": "Fewest and most refinement steps; refinement stops when no label changes",
    "sort": "The order of the list",
    "dataset": "Lists the episodes of these datasets",
    "ways": "Lists episodes with so many classes",
    "shots": "Lists episodes in which some class has so many support images",
    "episodes": "Choose an episode with the mouse or the arrow keys",
    "variant": "Whose predictions are shown",
    "step": "The refinement step whose predictions are shown",
    "stop": "To the step at which the stopping rule ends",
    "open": "Shows this episode's clustering step by step, below; loads the network",
    "close": "Closes the stepper",
}


def make_controls(study: Study, evaluation: str, better: str, than: str) -> dict[str, ipywidgets.Widget]:
    """All controls by name; the filters and the list are empty as yet."""
    rule, variants = study.refinement, variants_of(study, evaluation)
    limits = rule.minimum_steps, rule.maximum_steps
    return {
        "evaluation": menu("Evaluation", 330, list(study.evaluations), evaluation),
        "better": menu("Gain of", 190, variants, better),
        "than": menu("over", 170, variants, than),
        "limits": range_slider("Stopping rule: minimum, maximum", 460, 0, rule.recorded_steps, limits),
        "sort": menu("Sort", 300, list(SORTS)),
        "dataset": menu("Dataset", 260, [("All datasets", ALL)]),
        "ways": range_slider("Way", 240, 0, 1, (0, 1)),
        "shots": range_slider("A class with shot", 320, 0, 1, (0, 1)),
        "episodes": styled(ipywidgets.Select(options=[], rows=9), "", None),
        "variant": menu("Predictions of", 215, [better, than]),
        "step": slider("Refinement step", 305, 0, 1, 0, live=True),
        "stop": button("Where it stops", 120),
        "open": button("Open in the stepper", 155),
        "close": button("Close", 100),
        "tabs": ipywidgets.Tab([text("tcnaps-sheet"), text("tcnaps-confusion")], titles=TABS, selected_index=IMAGES),
    }


def offer_variants(controls: Mapping[str, ipywidgets.Widget], variants: list[str]) -> None:
    """Offers an evaluation's variants for the comparison; of those chosen before, what is still there stays."""
    offer(controls["better"], variants, variants[-1])
    better, than = controls["better"].value, controls["than"]
    other = next(name for name in variants if name != better)
    offer(than, variants, other)
    if than.value == better:
        than.value = other


def offer_filters(controls: Mapping[str, ipywidgets.Widget], table: pd.DataFrame) -> None:
    """Offers the datasets, ways and shots of a table; what had been narrowed stays so where it can."""
    domains = table.drop_duplicates("dataset").set_index("dataset")["domain"]
    options = [("All datasets", ALL)]
    if domains.nunique() > 1:
        options += [("All in-domain", ("domain", "in")), ("All out-of-domain", ("domain", "out"))]
    words = {"in": "in-domain", "out": "out-of-domain"}
    options += [(f"{name} ({words[domain]})", ("dataset", name)) for name, domain in domains.items()]
    offer(controls["dataset"], options)
    refit(controls["ways"], int(table["way"].min()), int(table["way"].max()))
    refit(controls["shots"], int(table["lowest_shot"].min()), int(table["highest_shot"].max()))


def datasets_of(chosen: tuple[str, str], table: pd.DataFrame) -> list[str]:
    """The datasets that an option of the dataset filter stands for."""
    kind, name = chosen
    if kind == "dataset":
        return [name]
    return list(table.loc[table["domain"].eq(name) | (name == "all"), "dataset"].unique())


def lines(listed: pd.DataFrame, better: str, than: str) -> tuple[str, list[tuple[str, tuple[str, int]]]]:
    """The list's heading, and its options: one line per episode, with dataset and number as its value."""
    shown = listed.head(MOST_LISTED)
    cells = [[*COLUMNS, than, better, "gain", "stops at"], *map(_cells, shown.itertuples())]
    widths = [max(map(len, column)) for column in zip(*cells)]
    heading, *texts = [_aligned(line, widths) for line in cells]
    values = [(row.dataset, int(row.episode)) for row in shown.itertuples()]
    return heading, list(zip(texts, values, strict=True))


def _cells(row) -> list[str]:
    shots = str(row.lowest_shot) if row.lowest_shot == row.highest_shot else f"{row.lowest_shot}–{row.highest_shot}"
    accuracies = f"{100 * row.accuracy_than:.1f}%", f"{100 * row.accuracy:.1f}%"
    return [
        row.dataset,
        *map(str, (row.episode, row.way, shots, row.n_query)),
        *accuracies,
        points(row.gain),
        str(row.step),
    ]


def _aligned(line, widths) -> str:
    """Columns separated by spaces that a browser does not merge; text to the left, numbers to the right."""
    first, *others = (text.ljust(w) if i == 0 else text.rjust(w) for i, (text, w) in enumerate(zip(line, widths)))
    return "  ".join([first, *others]).replace(" ", "\N{NO-BREAK SPACE}")
