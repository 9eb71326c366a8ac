"""Recorded episodes: features and pictures in one file, in place of networks and images. No PyTorch and no ipywidgets.

`results/demonstration` is a study with such a file. It comes with the project, so that the notebooks have something to
show before anything is trained; `tcnaps_suite.workflow.demonstration` makes it.
"""

from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps.config.errors import MAKE

FOLDER = Path("results", "demonstration")  # from the project's root
STUDY, EPISODES = "study.yaml", "episodes.npz"


class Recorded(NamedTuple):
    """An episode without the networks and the dataset that it came from.

    Attributes:
        features: of each training: those of the support images, then those of the queries.
    """

    class_names: tuple[str, ...]
    support_labels: Int[np.ndarray, "n_support"]
    query_labels: Int[np.ndarray, "n_query"]
    support_images: UInt8[np.ndarray, "n_support height width 3"]
    query_images: UInt8[np.ndarray, "n_query height width 3"]
    features: dict[str, Float[np.ndarray, "n_images d"]]


def open_study(path: str | Path, replicate: int = 0) -> Study:
    """A study to be looked at; the demonstration, which one printed line says, if the study has no results yet.

    Raises:
        ConfigError: as `load_study`.
    """
    study, demonstration = load_study(path, replicate), project_root() / FOLDER / STUDY
    if any(any((study.results_folder / made).glob("*")) for made in ("checkpoints", "rows")):
        return study
    if not demonstration.is_file():
        return study
    print(
        f"Study '{study.name}' has no results yet, so this is the demonstration: episodes of the built-in study, "
        f"chosen because much happens in them. Their averages are no results. {MAKE}"
    )
    return load_study(demonstration)


def is_recorded(study: Study) -> bool:
    """Whether the study's episodes come from a file, with neither networks nor images."""
    return (study.results_folder / EPISODES).is_file()


def recorded(study: Study, evaluation: str, dataset: str, episode: int) -> Recorded | None:
    """A recorded episode; None if the study's episodes come from networks and images.

    Raises:
        UserError: others are recorded, but not this one.
    """
    if not is_recorded(study):
        return None
    place = f"{evaluation}/{dataset}/{episode}/"
    with np.load(study.results_folder / EPISODES) as arrays:
        own = {name.removeprefix(place): arrays[name] for name in arrays.files if name.startswith(place)}
    if not own:
        there = "; ".join(
            f"{name} with {' or '.join(e.datasets)}, episodes 0 to {e.episodes - 1}"
            for name, e in study.evaluations.items()
        )
        raise UserError(f"The demonstration has no episode {episode} of {dataset}, {evaluation}. It has {there}.")
    support, query = own.pop("support_labels"), own.pop("query_labels")
    strip = np.asarray(Image.open(BytesIO(own.pop("pictures").tobytes())))
    images = strip.reshape(len(support) + len(query), -1, *strip.shape[1:])
    names = tuple(own.pop("class_names").tolist())
    return Recorded(names, support, query, images[: len(support)], images[len(support) :], own)
