"""An episode of the results → the very images it came from, drawn again and compared with what was recorded."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import UInt8

from tcnaps.config import Study, project_root
from tcnaps.datasets import open_split
from tcnaps.episodes.sampling import Draw, draw_episode


class StaleRowsError(ValueError):
    """An episode can't be drawn again as its rows recorded it; the message says what differs and the remedy."""


@dataclass(frozen=True)
class Replayed:
    """An episode's images, in the order of its rows.

    Attributes:
        class_names: by label.
    """

    draw: Draw
    class_names: tuple[str, ...]
    support_images: UInt8[np.ndarray, "n_support height width 3"]
    query_images: UInt8[np.ndarray, "n_query height width 3"]


def remedy(study: Study) -> str:
    """The command that trains and evaluates whatever is missing or stale."""
    file = f"configs/{study.name}.yaml"
    there = (project_root() / file).is_file()
    return f"`make figures STUDY={file if there else f'<the YAML of study {study.name}>'}`"


def replay(study: Study, own: pd.DataFrame) -> Replayed:
    """Draws an episode again from seed, dataset, split and number, and compares it with its rows.

    The images' numbers, labels, classes and shots are compared, but not their pixels.

    Args:
        own: of `episode_table.rows_of_episode`.

    Raises:
        StaleRowsError: other images or classes come out, as data, seed or protocol have changed since the evaluation.
        DatasetError: the dataset can't be opened.
    """
    first = own.iloc[0]
    name, index = first["evaluation"], int(first["episode"])
    title = f"Episode {index} of {first['dataset']}, evaluation {name}"
    again = f"evaluate again: {remedy(study)}."
    if name not in study.evaluations or first["dataset"] not in study.datasets:
        raise StaleRowsError(
            f"{title}: study '{study.name}' no longer has this dataset or evaluation. Restore it, or {again}"
        )
    source = open_split(study, first["dataset"], first["split"])
    try:
        draw = draw_episode(source, study.evaluations[name].protocol, study.seed, index)
    except ValueError as error:
        raise StaleRowsError(
            f"{title} can't be drawn again: {str(error).rstrip('.')}. "
            f"If data, seed or protocol have changed since then, {again}"
        ) from error
    names = tuple(source.class_names[k] for k in draw.classes)
    shots = np.bincount(draw.support_labels, minlength=len(names))
    drawn = {
        "label": draw.query_labels,
        "image": draw.query_images,
        "shot": shots[draw.query_labels],
        "class_name": np.array(names, dtype=object)[draw.query_labels],
    }
    differing = [c for c, v in drawn.items() if len(v) != len(own) or (own[c].to_numpy() != v).any()]
    if differing:
        raise StaleRowsError(
            f"{title} now has other images than its rows recorded ({', '.join(differing)} differ): "
            f"data, seed or protocol have changed since the evaluation. To renew the rows, {again}"
        )
    return Replayed(draw, names, source.images[draw.support_images], source.images[draw.query_images])
