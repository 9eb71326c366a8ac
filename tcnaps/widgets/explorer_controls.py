"""The explorer's controls and where they stand; what they do is `explorer_widget`'s."""

from collections.abc import Mapping

import ipywidgets
import pandas as pd

from tcnaps.config import Study
from tcnaps.figures import results as figures
from tcnaps.widgets import (
    episode_figures,
    episode_table as episode_rows,
    explorer_data as exploring,
    widget_base as parts,
)
from tcnaps.widgets.explorer_html import words
from tcnaps.widgets.keyboard import keys

MOST_LISTED = 500  # episodes in the list; the filters reach the others
TABS = ("Images", "Step by step", "Confusion", "Class recall", "Recall against shot")
IMAGES, STEPS, CONFUSION, CLASSES, SHOTS = range(len(TABS))


class Controls:
    """Every control of one explorer."""

    def __init__(self, study: Study, evaluation: str, better: str, than: str):
        rule, variants = study.refinement, exploring.variants_of(study, evaluation)
        self.evaluation = _dropdown(
            list(study.evaluations),
            evaluation,
            "Evaluation",
            "tcnaps-filter-evaluation",
            "Which evaluation's episodes",
            "330px",
        )
        self.better = _dropdown(variants, better, "Gain of", "tcnaps-filter-variant", "The variant looked at", "190px")
        self.than = _dropdown(variants, than, "over", "tcnaps-filter-than", "The variant it is compared with", "170px")
        self.limits = _range(
            "Stopping rule: minimum, maximum",
            "tcnaps-filter-limits",
            "Fewest and most refinement steps; refinement stops when no label changes",
            "460px",
        )
        _span(self.limits, 0, rule.recorded_steps, (rule.minimum_steps, rule.maximum_steps))
        self.dataset = _dropdown(
            [("All datasets", ("domain", "all"))],
            ("domain", "all"),
            "Dataset",
            "tcnaps-filter-dataset",
            "Lists episodes of these datasets",
            "260px",
        )
        self.ways = _range("Way", "tcnaps-filter-way", "Lists episodes with so many classes", "240px")
        self.shots = _range(
            "A class with shot",
            "tcnaps-filter-shot",
            "Lists episodes in which some class has so many support images",
            "320px",
        )
        sorts = list(exploring.SORTS)
        self.sort = _dropdown(sorts, sorts[0], "Sort", "tcnaps-filter-sort", "The order of the list", "300px")
        self.header, self.count = ipywidgets.HTML(), _words("tcnaps-count")
        self.episodes = parts.labelled(
            ipywidgets.Select(options=[], rows=9),
            "tcnaps-episodes",
            "Episodes; choose one with the mouse or the arrow keys",
            "100%",
        )
        self.status = _words("tcnaps-status")
        self.variant = _dropdown(
            [better, than], better, "Predictions of", "tcnaps-variant", "Whose predictions are shown", "215px"
        )
        self.step = parts.labelled(
            ipywidgets.IntSlider(min=0, max=1, description="Refinement step"),
            "tcnaps-slider",
            "The refinement step whose predictions are shown",
            "305px",
        )
        self.stop = _button("Where it stops", "tcnaps-stop", "To the step at which the rule stops", "120px")
        self.open = _button(
            "Open in the stepper",
            "tcnaps-open",
            "Shows this episode's clustering step by step, below; loads the network",
            "155px",
        )
        self.close = _button("Close", "tcnaps-close", "Closes the stepper", "100px")
        which = list(episode_rows.WHICH)
        self.which = _dropdown(
            which, which[0], "Queries", "tcnaps-filter-queries", "Which queries the table shows", "330px"
        )
        self.style_sheet = ipywidgets.HTML(layout=ipywidgets.Layout(height="0px", margin="0px"))
        self.sheet, self.by_step, self.matrix = (_words(f"tcnaps-{name}") for name in ("sheet", "steps", "confusion"))
        for page in (self.sheet, self.by_step, self.matrix):  # wide tables scroll in themselves
            page.layout.width = "100%"
        self.classes = parts.image("tcnaps-classes")
        self.curves = parts.image("tcnaps-curves")
        self.curves_note = _words("tcnaps-curves-note")
        self.shots_page = ipywidgets.VBox([])
        pages = [self.sheet, ipywidgets.VBox([self.which, self.by_step]), self.matrix, self.classes, self.shots_page]
        self.tabs = ipywidgets.Tab(pages, titles=TABS, selected_index=IMAGES)
        self.tabs.add_class("tcnaps-tabs")
        self.below = ipywidgets.VBox([])

    def arranged(self, notice, loading, fetching, averaging, opening) -> list[ipywidgets.Widget]:
        """The explorer's children, from top to bottom. The lines in which bars appear keep their height."""
        self.shots_page.children = [averaging, self.curves_note, self.curves]
        self.details = ipywidgets.VBox(
            [
                ipywidgets.HBox([self.status, fetching], layout=_line("46px")),
                ipywidgets.HBox([self.variant, self.step, self.stop, self.open], layout=_line()),
                opening,
                self.tabs,
                self.below,
            ]
        )
        return [
            self.style_sheet,
            keys(),
            ipywidgets.HBox([self.evaluation, self.better, self.than], layout=_line()),
            ipywidgets.HBox([self.limits, self.sort], layout=_line()),
            ipywidgets.HBox([self.dataset, self.ways, self.shots], layout=_line()),
            notice,
            ipywidgets.HBox([self.count, loading], layout=_line("46px")),
            self.header,
            self.episodes,
            self.details,
        ]

    def settings(self) -> tuple[str, str, str, exploring.Limits]:
        """What a table is made with: evaluation, better, than, limits."""
        return self.evaluation.value, self.better.value, self.than.value, tuple(self.limits.value)

    def restore(self, settings: tuple) -> None:
        """Puts the controls to what a table was made with."""
        self.evaluation.value, self.limits.value = settings[0], settings[3]

    def offer_variants(self, variants: list[str], better: str, than: str) -> None:
        """Sets the variants to choose among; of those chosen before, what is still there stays."""
        better = better if better in variants else variants[-1]
        than = than if than in variants and than != better else next(v for v in variants if v != better)
        for control, value in ((self.better, better), (self.than, than)):
            control.options, control.value = variants, value

    def offer(self, table: pd.DataFrame) -> None:
        """Sets the filters to what a table holds; what had been narrowed stays so where it can."""
        domains = table.drop_duplicates("dataset").set_index("dataset")["domain"]
        options = [("All datasets", ("domain", "all"))]
        if domains.nunique() > 1:
            options += [("All in-domain", ("domain", "in")), ("All out-of-domain", ("domain", "out"))]
        options += [
            (f"{name} ({domain}-{'of-' if domain == 'out' else ''}domain)", ("dataset", name))
            for name, domain in domains.items()
        ]
        before = self.dataset.value
        self.dataset.options = options
        self.dataset.value = before if before in [value for _, value in options] else ("domain", "all")
        _refit(self.ways, int(table["way"].min()), int(table["way"].max()))
        _refit(self.shots, int(table["lowest_shot"].min()), int(table["highest_shot"].max()))

    def datasets(self, table: pd.DataFrame) -> list[str] | None:
        """The datasets that the filter names."""
        kind, name = self.dataset.value
        if kind == "dataset":
            return [name]
        return None if name == "all" else list(table.loc[table["domain"] == name, "dataset"].unique())

    def list_episodes(self, listed: pd.DataFrame, better: str, than: str, chosen: tuple | None) -> None:
        """Fills the list; keeps the episode chosen where it is still listed."""
        heads = ("dataset", "episode", "way", "shots", "queries", than, better, "gain", "stops at")
        lines = [_cells(row) for row in listed.head(MOST_LISTED).itertuples()]
        widths = [max(len(line[i]) for line in [heads, *lines]) for i in range(len(heads))]
        aligned = [_aligned(line, widths) for line in lines]
        values = [(row.dataset, int(row.episode)) for row in listed.head(MOST_LISTED).itertuples()]
        self.header.value = f'<div class="xheader">{_aligned(heads, widths)}</div>'
        self.episodes.options = list(zip(aligned, values, strict=True))
        if values:
            self.episodes.value = chosen if chosen in values else values[0]

    def show_classes(self, recalls: Mapping[str, pd.DataFrame]) -> None:
        """Variant → of `episode_rows.recall_by_class`."""
        way = len(next(iter(recalls.values())))
        with parts.drawing():
            figure = parts.new_figure(760, 90 + 21 * way)
            episode_figures.recalls_of_classes(figure.subplots(), recalls)
            parts.put(self.classes, figure)

    def show_shots(self, recalls: pd.DataFrame, n_episodes: int) -> None:
        """What `exploring.recall_by_shot` gives for so many episodes."""
        with parts.drawing():
            figure = parts.new_figure(800, 290)
            panels = len(figures.domains_shown(recalls))
            figures.class_recall(figure.subplots(1, panels, sharey=True, squeeze=False)[0], recalls)
            parts.put(self.curves, figure)
        self.curves_note.value = words(
            f"Classes of the {n_episodes} listed episodes, by their number of support images; bands are 95% intervals."
        )


def _cells(row) -> tuple[str, ...]:
    shots = str(row.lowest_shot) if row.lowest_shot == row.highest_shot else f"{row.lowest_shot}–{row.highest_shot}"
    return (
        row.dataset,
        str(row.episode),
        str(row.way),
        shots,
        str(row.n_query),
        f"{100 * row.accuracy_than:.1f}%",
        f"{100 * row.accuracy:.1f}%",
        exploring.points(row.gain),
        str(row.step),
    )


def _aligned(line, widths) -> str:
    """Columns by spaces that a browser does not merge; the first to the left, numbers to the right."""
    first, *others = (text.ljust(w) if i == 0 else text.rjust(w) for i, (text, w) in enumerate(zip(line, widths)))
    return "  ".join([first, *others]).replace(" ", "\N{NO-BREAK SPACE}")


def _dropdown(options, value, description, css_class, tooltip, width) -> ipywidgets.Dropdown:
    return parts.labelled(
        ipywidgets.Dropdown(options=options, value=value, description=description), css_class, tooltip, width
    )


def _range(description, css_class, tooltip, width) -> ipywidgets.IntRangeSlider:
    slider = ipywidgets.IntRangeSlider(min=0, max=1, value=(0, 1), description=description, continuous_update=False)
    return parts.labelled(slider, css_class, tooltip, width)


def _span(slider: ipywidgets.IntRangeSlider, low: int, high: int, value: exploring.Range) -> None:
    """New ends and value. A slider of one value is disabled, with an end to spare, as browsers can't draw it."""
    top = max(high, low + 1)
    slider.min, slider.max = min(slider.min, low), max(slider.max, top)  # an end may not pass the other
    slider.value = value
    slider.min, slider.max = low, top
    slider.disabled = low == high


def _refit(slider: ipywidgets.IntRangeSlider, low: int, high: int) -> None:
    """New ends; a range that covered all goes on to do so, another is cut to the new ends."""
    first, last = slider.value
    first = low if first <= slider.min else min(max(first, low), high)
    last = high if last >= slider.max or slider.disabled else max(min(last, high), low)
    _span(slider, low, high, (first, last))


def _words(css_class: str) -> ipywidgets.HTML:
    place = ipywidgets.HTML()
    place.add_class(css_class)
    return place


def _button(description, css_class, tooltip, width) -> ipywidgets.Button:
    button = ipywidgets.Button(description=description, tooltip=tooltip, layout=ipywidgets.Layout(width=width))
    button.add_class(css_class)
    return button


def _line(height: str | None = None) -> ipywidgets.Layout:
    return ipywidgets.Layout(flex_flow="row wrap", align_items="center", min_height=height)
