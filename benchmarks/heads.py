"""Every head on features from files: across shots, numbers of classes, unequal classes and wrong labels.

    python benchmarks/heads.py birds.npz textures.npz --out results/bench
    python benchmarks/heads.py birds/ --backbone torchvision:resnet18 --out results/bench

A file holds `features` (n, d) and `labels` (n,); a folder holds one folder of images per class. Either names a dataset.
A head is a classifier as in `tcnaps_suite.experiments.rivals`.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from tqdm.auto import tqdm

from tcnaps.config import FixedProtocol, UserError
from tcnaps.data.image_source import ImageSource
from tcnaps.data.listing import walk
from tcnaps.data.readers.folders import subfolders
from tcnaps.episodes.sampling import Draw, draw_episode, episode_generator
from tcnaps.evaluation.intervals import other_classes
from tcnaps.evaluation.result_files import write_csv
from tcnaps.figures import style
from tcnaps_suite.experiments.balance import unbalanced
from tcnaps_suite.experiments.comparison import EpisodeFeatures, compare_classifiers
from tcnaps_suite.experiments.networks import KINDS, default_network, open_network
from tcnaps_suite.experiments.rivals import Classifier, of_estimator, rivals
from tcnaps_suite.labelling.embedding import embed

QUERIES = 50  # per episode with unequal classes, or with five equal ones; fewer where images run out
BASE = "Step 0"
BEST = "Best on other episodes"


class Setting(NamedTuple):
    """What an episode is like: `share` holds arguments of `unbalanced`, `wrong` the share of wrong support labels."""

    way: int
    shot: int
    share: dict = {}  # noqa: RUF012 - a constant
    wrong: float = 0.0


SETTINGS = {f"{way}-way {shot}-shot": Setting(way, shot) for way in (5, 20) for shot in (1, 5, 20)}
for number in (1, 5):
    SETTINGS |= {f"{number}-shot, α = {a}": Setting(5, number, {"concentration": a}) for a in (2, 1)}
    SETTINGS |= {f"{number}-shot, {k} of 5 classes": Setting(5, number, {"present": k}) for k in (3, 2, 1)}
SETTINGS["5-shot, wrong labels"] = Setting(5, 5, wrong=0.2)
for way, number in ((2, 1), (2, 5), (3, 1), (3, 5)):
    SETTINGS[f"{way}-way {number}-shot"] = Setting(way, number)
    SETTINGS[f"{way}-way {number}-shot, α = 1"] = Setting(way, number, {"concentration": 1})
    SETTINGS[f"{way}-way {number}-shot, 1 class"] = Setting(way, number, {"present": 1})


def heads() -> dict[str, Classifier]:
    """This project's head without and with refinement, with equal classes assumed, and the rivals."""
    return {
        BASE: of_estimator(maximum_steps=0),
        "Estimator": of_estimator(),
        "Estimator, no prior": of_estimator(class_prior=None),
        "Estimator, equal classes": of_estimator(class_prior="balancing"),
    } | rivals()


def features_from(file: Path) -> ImageSource:
    """The file's features as a source of episodes, in float32; a UserError where the file is not such an .npz."""
    try:
        with np.load(file) as arrays:
            features, labels = arrays["features"].astype(np.float32), arrays["labels"]
        order = np.argsort(labels, kind="stable")
        names, sizes = np.unique(labels, return_counts=True)
        shaped = features.ndim == 2 and features.size > 0 and labels.shape == (len(features),)
        if not shaped or not np.isfinite(features).all():
            raise ValueError("features must be finite, one row for each label")
    except Exception as error:  # damage shows in many ways
        raise UserError(f"{file} must be an .npz with 'features' (n, d) and 'labels' (n,): {error}") from error
    return ImageSource(file.stem, "test", features[order], tuple(map(str, names)), np.cumsum([0, *sizes]))


def features_of_folder(folder: Path, backbone: str) -> ImageSource:
    """The features of a folder of classes under a network. Images that can't be read are left out, and named."""
    classes = subfolders(folder)
    files = [(k, Path(at, file)) for k, place in enumerate(classes) for at, _, names in walk(place) for file in names]
    if backbone.startswith("study:"):
        raise UserError(f"--backbone {backbone}: a study's network is adapted to an episode's images. Name another.")
    if len(classes) < 2:
        raise UserError(f"{folder} needs a folder for each of at least two classes.")
    codes, paths = np.array([k for k, _ in files]), [file for _, file in files]
    features, unreadable = embed(paths, codes, open_network(backbone))
    for number, reason in unreadable.items():
        print(f"{paths[number]} is left out: {reason}", file=sys.stderr)
    readable = ~np.isin(np.arange(len(paths)), [*unreadable])
    sizes = np.bincount(codes[readable], minlength=len(classes))
    names = tuple(place.name for place in classes)
    return ImageSource(folder.name, "test", features[readable], names, np.cumsum([0, *sizes]))


def episodes_of(source: ImageSource, setting: Setting, episodes: int, queries: int = QUERIES) -> Iterator[Draw]:
    """The episodes of a setting; none where the source has too few classes or images for it."""
    room = int(source.class_sizes.min()) - setting.shot
    queries = min(queries if setting.share else queries // 5, room)
    if source.n_classes < setting.way or queries < 1:
        return
    protocol = FixedProtocol(way=setting.way, shot=setting.shot, queries_per_class=queries)
    for index in range(episodes):
        draw = draw_episode(source, protocol, 0, index)
        yield unbalanced(draw, 0, **setting.share) if setting.share else draw


def mislabelled(draw: Draw, share: float | int) -> torch.Tensor:
    """The support labels, of which this share, drawn at random, names another class."""
    labels, way = draw.support_labels.copy(), len(draw.classes)
    generator = episode_generator(0, draw.dataset, "wrong labels", draw.index)
    rows = generator.choice(len(labels), round(share * len(labels)), replace=False)
    labels[rows] = (labels[rows] + generator.integers(1, way, len(rows))) % way
    return torch.from_numpy(labels)


def drawn(
    sources: Sequence[ImageSource], settings: Mapping[str, Setting], episodes: int, queries: int = QUERIES
) -> Iterator[EpisodeFeatures]:
    """The episodes of every setting and dataset, with `setting` and the names of their `classes` among the facts."""
    for (name, setting), source in tqdm([(s, source) for s in settings.items() for source in sources], desc="heads"):
        for draw in episodes_of(source, setting, episodes, queries):
            support, query = (torch.from_numpy(source.images[k]) for k in (draw.support_images, draw.query_images))
            classes = tuple(source.class_names[k] for k in draw.classes)
            facts = {"setting": name, "dataset": source.dataset, "episode": draw.index, "classes": classes}
            labels, truth = mislabelled(draw, setting.wrong), torch.from_numpy(draw.query_labels)
            yield EpisodeFeatures(facts, support, labels, query, truth)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Per setting and head, of each dataset and of all: accuracy, difference with its intervals, and seconds."""
    frames = []
    for (setting, head), cells in rows.groupby(["setting", "head"], sort=False):
        table = other_classes(cells, "difference").iloc[:, :6]
        for value in ("accuracy", "seconds"):
            means = cells.groupby("dataset")[value].mean()
            table[value] = table["dataset"].map(means).fillna(means.mean())
        frames.append(table.assign(setting=setting, head=head))
    columns = ["setting", "head", "dataset", "accuracy", "difference", "class_interval", "interval", "n_classes"]
    return pd.concat(frames)[[*columns, "n_episodes", "seconds"]]


def best_on_other_episodes(rivals: pd.DataFrame) -> np.ndarray:
    """In the even episodes of a setting and dataset, the accuracy of the head that is best in the odd ones; and so on.

    So no head is chosen by the episodes that it is compared on, where the best of many would be so by luck.
    """
    half = rivals.index.get_level_values("episode") % 2
    best = rivals.groupby(["setting", "dataset", half]).mean().idxmax(axis=1)
    names = [best[setting, dataset, 1 - episode % 2] for setting, dataset, episode in rivals.index]
    return rivals.to_numpy()[range(len(rivals)), rivals.columns.get_indexer(names)]


def leads(rows: pd.DataFrame) -> pd.DataFrame:
    """The estimators minus every rival, and minus the best, paired by episode: per setting, of each dataset and of all.

    With a single rival or a single episode there is no best.
    """
    keys = ["setting", "dataset", "episode"]
    accuracy = rows.pivot(index=keys, columns="head", values="accuracy")
    classes, frames = rows.drop_duplicates(keys).set_index(keys)["classes"], []
    own = accuracy.columns.str.startswith("Estimator")
    own, rivals = accuracy.columns[own], accuracy.columns[~own].drop(BASE)
    if len(rivals) > 1 and rows["episode"].max() > 0:
        accuracy[BEST], rivals = best_on_other_episodes(accuracy[rivals]), [*rivals, BEST]
    for head, rival in product(own, rivals):
        pairs = pd.DataFrame({"difference": accuracy[head] - accuracy[rival], "classes": classes}).reset_index()
        for setting, cells in pairs.groupby("setting", sort=False):
            frames.append(other_classes(cells, "difference").assign(setting=setting, head=head, rival=rival))
    columns = ["setting", "head", "rival", "dataset", "difference", "class_interval", "interval", "n_episodes"]
    return pd.concat(frames)[columns] if frames else pd.DataFrame(columns=columns)


def draw(table: pd.DataFrame, path: Path) -> None:
    """A panel per setting: each head's mean difference from `BASE`; intervals are for other classes where known."""
    means = table[(table["dataset"] == "all") & (table["head"] != BASE)]
    names, settings = list(means["head"].unique()), list(means["setting"].unique())
    n_columns = min(len(settings), 5 if len(settings) % 5 == 0 else 4)
    n_rows = -(-len(settings) // n_columns)
    size = {"columns": n_columns, "rows": n_rows, "height": 0.5 + n_rows * (0.6 + 0.15 * len(names))}
    with style.figure(path, **size, sharex=True, sharey=True) as (_, axes):
        for number, (ax, setting) in enumerate(zip(axes, settings), 1):
            ax.tick_params(labelbottom=number + n_columns > len(settings))  # the lowest of its column
            cells = means[means["setting"] == setting]
            widths = 100 * cells["class_interval"].fillna(cells["interval"])
            for own in (True, False):
                shown = cells["head"].str.startswith("Estimator") == own
                colour = style.PALETTE[0] if own else style.GREY
                y = cells["head"][shown].map(names.index)
                style.dots(ax, 100 * cells["difference"][shown], y, (colour, "o"), xerr=widths[shown], markersize=3)
            style.zero_line(ax, "y")
            ax.set_title(setting.replace(", ", ",\n"), loc="left")
            ax.set_yticks(range(len(names)), names)
            ax.set_ylim(len(names) - 0.5, -0.5)
        for ax in axes[len(settings) :]:
            ax.set_visible(False)
        axes[0].figure.supxlabel(f"Difference from {BASE.lower()}, the head without refinement (points)", fontsize=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="an .npz or a folder for each dataset")
    parser.add_argument("--backbone", help=f"of folders: {KINDS}, but no study; default: {default_network()}")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the tables and the figure")
    parser.add_argument("--episodes", type=int, default=60, help="of each setting and dataset")
    parser.add_argument("--queries", type=int, default=QUERIES, help=f"images of an episode; default: {QUERIES}")
    parser.add_argument("--heads", nargs="+", help="default: all but α-TIM (slow); a wrong name lists them")
    parser.add_argument("--settings", nargs="+", metavar="SETTING", default=list(SETTINGS), help="default: all")
    options = parser.parse_args()
    try:
        known = heads()
    except UserError as error:  # a package is missing
        parser.error(str(error))
    chosen = [BASE, *(options.heads or [name for name in known if name not in (BASE, "α-TIM")])]
    if options.episodes < 1 or {*chosen} == {BASE}:
        parser.error(f"--episodes must be 1 at least, and --heads needs one besides {BASE}, their measure")
    for name, allowed in [(n, known) for n in chosen] + [(n, SETTINGS) for n in options.settings]:
        if name not in allowed:
            parser.error(f"there is no '{name}'; there are: {', '.join(allowed)}")
    try:
        backbone = options.backbone or default_network()
        sources = [features_of_folder(at, backbone) if at.is_dir() else features_from(at) for at in options.files]
    except UserError as error:
        parser.error(str(error))
    settings = {name: SETTINGS[name] for name in options.settings}
    if len({source.dataset for source in sources} - {"all"}) < len(sources):
        parser.error("two datasets have the same name, or one is called 'all': rename a file or a folder")
    first = (episodes_of(source, setting, 1, options.queries) for source in sources for setting in settings.values())
    if not any(map(list, first)):
        parser.error("no dataset has enough classes, with enough images of each, for an episode of these settings")
    episodes = drawn(sources, settings, options.episodes, options.queries)
    rows = compare_classifiers(episodes, {name: known[name] for name in chosen}, BASE)
    rows = rows.rename(columns={"classifier": "head"})
    table = summary(rows)
    write_csv(rows.assign(classes=rows["classes"].map(" | ".join)), options.out / "heads-episodes.csv")
    write_csv(table, options.out / "heads.csv")
    write_csv(leads(rows), options.out / "leads.csv")
    draw(table, options.out / "heads")
    means = table[table["dataset"] == "all"].pivot(index="head", columns="setting", values="difference")
    print((100 * means.reindex(index=chosen, columns=options.settings)).round(1).to_string())


if __name__ == "__main__":
    main()
