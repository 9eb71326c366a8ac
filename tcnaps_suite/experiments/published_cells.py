"""The cells of the paper's Table 2 beside those of a study of the same benchmark."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tcnaps.evaluation.intervals import other_classes
from tcnaps.evaluation.result_files import read_published
from tcnaps.evaluation.statistics import episode_accuracies, paired_episodes, with_classes
from tcnaps.evaluation.stopped_rows import variant_predictions
from tcnaps.figures import style

MODELS = {"Simple": "Simple CNAPS", "Transductive": "Transductive CNAPS"}  # variants, and their names in Table 2
GAIN = "Transductive minus Simple"
SETTING = ["way", "shot"]
CELL = ["evaluation", "benchmark", *SETTING]


def published_cells(
    rows: pd.DataFrame, benchmarks: Mapping[str, str], limits: tuple[int, int], suffix: str = ""
) -> pd.DataFrame:
    """Published and own accuracy of every benchmark, way, shot and variant, and the paired gain.

    `rows` are of evaluations of fixed way and shot; `benchmarks` are datasets of the study → their names in Table 2,
    where models' names may have a `suffix`, such as " + FETI". `method` is a variant or `GAIN`; `interval` is for other
    episodes and trainings, `class_interval` for other classes, too; `reached` says that `published` lies below the
    upper end of `class_interval`. The `difference` from published has the paper's interval and `interval` combined.
    """
    rows, tables = rows.assign(benchmark=rows["dataset"].map(benchmarks)), []
    for keys, cell in rows.groupby(CELL, sort=False, observed=True):
        episodes = episode_accuracies(variant_predictions(cell, list(MODELS), *limits))
        simple, transductive = (episodes[episodes["variant"] == name] for name in MODELS)
        methods = {"Simple": simple, "Transductive": transductive, GAIN: paired_episodes(transductive, simple)}
        for method, frame in methods.items():
            value = "difference" if method == GAIN else "accuracy"
            estimated = other_classes(with_classes(frame, cell), value).iloc[0].rename({value: "accuracy"})
            tables.append(dict(zip(CELL, keys)) | {"method": method} | estimated.drop("dataset").to_dict())
    table = pd.DataFrame(tables).merge(_published(suffix), on=["benchmark", *SETTING, "method"], how="left")
    table["reached"] = table["published"] <= table["accuracy"] + table["class_interval"]
    table["difference"] = table["accuracy"] - table["published"]
    table["difference_interval"] = np.hypot(table["interval"], table["published_interval"])
    columns = [*CELL, "method", "published", "published_interval", "accuracy", "interval", "class_interval"]
    columns += ["n_classes", "n_episodes", "n_replicates", "reached", "difference", "difference_interval"]
    return table[columns].sort_values(CELL[1:], kind="stable", ignore_index=True)


def _published(suffix: str) -> pd.DataFrame:
    names = {f"{model}{suffix}": variant for variant, model in MODELS.items()}
    table = read_published(2).assign(method=lambda rows: rows["model"].map(names)).dropna(subset="method")
    table = table.rename(columns={"accuracy": "published", "interval": "published_interval"})
    keys = ["benchmark", *SETTING]
    accuracies = table.pivot(index=keys, columns="method", values="published")
    gains = (accuracies["Transductive"] - accuracies["Simple"]).rename("published").reset_index().assign(method=GAIN)
    return pd.concat([table, gains])[[*keys, "method", "published", "published_interval"]]


def in_words(table: pd.DataFrame) -> str:
    """How many published accuracies are met on these classes, and reached; how large the gains are."""
    accuracies, gains = table[(table["method"] != GAIN) & table["published"].notna()], table[table["method"] == GAIN]
    least, most = 100 * gains["accuracy"].min(), 100 * gains["accuracy"].max()
    positive = (gains["accuracy"] - gains["class_interval"] > 0).sum()
    agree = accuracies["difference"].abs() <= accuracies["difference_interval"]
    higher = ~agree & (accuracies["difference"] > 0)
    return (
        f"Of {len(accuracies)} published accuracies {agree.sum()} agree with these on the same classes, {higher.sum()} "
        f"are lower; {accuracies['reached'].sum()} are reached. {GAIN}: {least:+.1f} to {most:+.1f} points; "
        f"in {positive} of {len(gains)} settings its 95% interval for other classes lies above 0."
    ).replace("-", "−")


def draw_cells(ax: Axes, table: pd.DataFrame) -> None:
    """Published (open) and own accuracies (filled) by setting; thick bars for other episodes, thin for classes."""
    settings = table[CELL].drop_duplicates().reset_index(drop=True)
    for position, method in enumerate(MODELS):
        cells = settings.merge(table[table["method"] == method], on=CELL)
        colour, marker = style.variant_style(method)
        x = np.arange(len(cells)) + 0.36 * (position - 0.5)
        look = {"fmt": marker, "color": colour}
        published = {"label": f"{method}, published", "markerfacecolor": "white", "elinewidth": 1}
        ax.errorbar(x - 0.07, 100 * cells["published"], 100 * cells["published_interval"], **look, **published)
        own, here = 100 * cells["accuracy"], {"label": f"{method}, here", "elinewidth": 3}
        ax.errorbar(x + 0.07, own, 100 * cells["class_interval"], elinewidth=1, **look)
        ax.errorbar(x + 0.07, own, 100 * cells["interval"], **look, **here)
    ax.set_xticks(range(len(settings)), [f"{row.way}-way\n{row.shot}-shot" for row in settings.itertuples()])
    ax.set_ylabel("accuracy (%)")
    style.legend_below([ax], 2)
