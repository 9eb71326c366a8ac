"""A study's episodes as they are shown: their images, and in the demonstration their features. No PyTorch.

Images are drawn again from the datasets. The demonstration's come from `results/demonstration/episodes.npz`, which
`docs/demonstration.py` makes.
"""

from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps.config.errors import MAKE
from tcnaps.data import open_split
from tcnaps.data.image_source import ImageSource
from tcnaps.episodes.sampling import Draw, draw_episode
from tcnaps_suite.workflow.reference import check

FOLDER = Path("results", "demonstration")  # from the project's root
STUDY, EPISODES = "study.yaml", "episodes.npz"


class ShownImages(NamedTuple):
    """The images of an episode, RGB, with their labels. Class k is `class_names[k]`.

    The demonstration's were recorded: `drawn` is None, and `features` maps a training to features, support first.
    """

    class_names: tuple[str, ...]
    support_labels: Int[np.ndarray, "n_support"]
    query_labels: Int[np.ndarray, "n_query"]
    support_images: UInt8[np.ndarray, "n_support height width 3"]
    query_images: UInt8[np.ndarray, "n_query height width 3"]
    drawn: tuple[ImageSource, Draw] | None
    features: dict[str, Float[np.ndarray, "n_images d"]]


def open_study(path: str | Path, replicate: int = 0) -> Study:
    """A study to be looked at. One without results gives way to the demonstration, and a printed line says so."""
    study, demonstration = load_study(path, replicate), project_root() / FOLDER / STUDY
    has_results = any(any((study.results_folder / made).glob("*")) for made in ("checkpoints", "rows"))
    if has_results or not demonstration.is_file():
        return study
    check(FOLDER.as_posix())
    print(
        f"Study '{study.name}' has no results yet, so this is the demonstration: episodes of the built-in study, "
        f"chosen because much happens in them. Their averages are no results. {MAKE}"
    )
    return load_study(demonstration)


def images_of(study: Study, evaluation: str, dataset: str, episode: int) -> ShownImages:
    """An episode's images. A UserError says that the demonstration lacks it, a ValueError that the dataset does."""
    if (study.results_folder / EPISODES).is_file():
        return _recorded(study, evaluation, dataset, episode)
    source = open_split(study, dataset, "test")
    draw = draw_episode(source, study.evaluations[evaluation].protocol, study.seed, episode)
    names = tuple(source.class_names[k] for k in draw.classes)
    images = source.images[draw.support_images], source.images[draw.query_images]
    return ShownImages(names, draw.support_labels, draw.query_labels, *images, (source, draw), {})


def _recorded(study: Study, evaluation: str, dataset: str, episode: int) -> ShownImages:
    place = f"{evaluation}/{dataset}/{episode}/"
    with np.load(study.results_folder / EPISODES) as arrays:
        own = {name.removeprefix(place): arrays[name] for name in arrays.files if name.startswith(place)}
    if not own:
        there = sorted({name.rpartition("/")[0] for name in arrays.files})
        raise UserError(f"The demonstration has no episode {place[:-1]}. It has {', '.join(there)}.")
    support, query = own.pop("support_labels"), own.pop("query_labels")
    strip = np.asarray(Image.open(BytesIO(own.pop("pictures").tobytes())))
    images = strip.reshape(len(support) + len(query), -1, *strip.shape[1:])
    names = tuple(own.pop("class_names").tolist())
    return ShownImages(names, support, query, images[: len(support)], images[len(support) :], None, own)
