"""What a folder to be labelled holds: images, their features, true labels where they are known, and files left out."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from tcnaps.config import UserError
from tcnaps.data.listing import normal, some, walk
from tcnaps.data.readers.folders import EXTENSIONS, subfolders
from tcnaps_suite.experiments.networks import default_network
from tcnaps_suite.labelling.embedding import features_of

UNLABELLED = ("unlabelled", "unlabeled")  # names of the folder of images without a label, in any case of letters
NONE = "none of these"  # in place of a label: the image belongs to no class
PILES = ("none of these?", "no label", "label these next")  # of the page, beside those of the classes
NO_IMAGE = "its name does not end as an image's, such as .jpg: rename it if it is one"
NO_HEIC = "HEIC needs one more package: pip install tcnaps[images]"
LARGEST = 1e15  # of given features: squares stay finite
OF_STUDY = "A study's network suits images like those it was trained on. On others it errs more than expected."
LOOSE = "it lies beside the class folders: put it into one, or into unlabelled/"


@dataclass(frozen=True)
class ImageFolder:
    """A folder's images with their features."""

    path: Path
    source: str  # the network or the file that the features come from
    images: pd.DataFrame  # file, relative to the folder, and label, None for images without one; index 0, …, n − 1
    features: np.ndarray  # (n, d)
    left_out: pd.DataFrame  # file and reason of the files that can't be used
    truth: dict[str, str] | None  # the true label of some images, by their `normal` names; None without a truth.csv

    @property
    def classes(self) -> list[str]:
        return sorted(self.images["label"].dropna().unique())


def open_folder(
    path: Path, backbone: str | None = None, features: Path | None = None, device: torch.device | str = "cpu"
) -> ImageFolder:
    """Finds a folder's images and computes their features by the network `backbone`, or reads them from `features`."""
    source = str(features or backbone or default_network())
    (images, left_out), unreadable = find_images(path), {}
    classes = {name: label for label in images["label"].dropna() for name in (normal(label), label)}
    truth = read_table(path / "truth.csv") if (path / "truth.csv").is_file() else None
    known = {normal(file): label for file, label in (truth or {}).items() if label.strip()}
    truth = truth and {file: classes.get(label, classes.get(normal(label), label)) for file, label in known.items()}
    if features is None:
        codes = pd.factorize(images["label"])[0]
        embedded, unreadable = features_of(path, images["file"].tolist(), codes, source, device)
    else:
        embedded = _given_features(features, images["file"])
    readable = ~images.index.isin(unreadable)
    for label, members in images.groupby(images["label"].fillna("unlabelled/"), sort=False):
        if not readable[members.index].any():
            raise UserError(f"No image in {path / label} can be read: add some, or delete the folder.")
    rows = [(images["file"][row], reason) for row, reason in unreadable.items()]
    left_out = pd.concat([pd.DataFrame(rows, columns=["file", "reason"], dtype=object), left_out])
    return ImageFolder(path, source, images[readable].reset_index(drop=True), embedded[readable], left_out, truth)


def find_images(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`file` and `label` of every image, and `file` and `reason` of the files that are left out."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}.")
    rows, left_out = [], [(name, LOOSE) for name in next(walk(folder))[2] if _is_image(name)]
    for inner in subfolders(folder):
        label = None if inner.name.lower() in UNLABELLED else inner.name
        files = [Path(place, name).relative_to(folder) for place, _, names in walk(inner) for name in names]
        for file in (file for file in files if not _is_image(file)):
            left_out.append((file.as_posix(), NO_HEIC if file.suffix.lower() in (".heic", ".heif") else NO_IMAGE))
        if not (files := [file.as_posix() for file in files if _is_image(file)]):
            raise UserError(f"{inner} has no images: add some, or delete the folder.")
        rows += [(file, label) for file in files]
    images = pd.DataFrame(rows, columns=["file", "label"], dtype=object)
    if images["label"].notna().all():
        raise UserError(f"{folder} needs a folder unlabelled/ with the images to be labelled.")
    if images["label"].nunique() < 2:
        raise UserError(f"{folder} needs a folder for each of at least two classes, with a few images of it.")
    if taken := sorted({NONE, *PILES} & set(images["label"])):
        raise UserError(f"{folder / taken[0]}: a class can't have this name. Rename the folder.")
    return images, pd.DataFrame(left_out, columns=["file", "reason"], dtype=object)


def _is_image(file: str | Path) -> bool:
    return Path(file).suffix.lower() in EXTENSIONS


def _given_features(file: Path, names: pd.Series) -> np.ndarray:
    """The named images' rows of `features` in an .npz, whose `files` are relative to the folder."""
    try:
        with np.load(file) as arrays:
            features = pd.DataFrame(arrays["features"].astype(np.float32), arrays["files"].astype(str))
            rows = features.reindex(names).to_numpy()
    except Exception as error:  # damage shows in many ways
        raise UserError(f"{file} must be an .npz with 'files' and one row of 'features' for each: {error}") from error
    if not set(names) <= set(features.index):
        absent = some(name for name in names if name not in features.index)
        raise UserError(
            f"{file}: features of {absent} are missing; it has those of {some(features.index)}. Names must be relative "
            "to the folder."
        )
    if rows.shape[1] == 0 or not np.isfinite(rows).all() or np.abs(rows).max() > LARGEST:
        raise UserError(f"{file}: 'features' must have columns of finite numbers, at most {LARGEST:g} in size.")
    return rows


def read_table(file: Path) -> dict[str, str]:
    """File → label, from a table with these columns."""
    return dict(read_rows(file)[["file", "label"]].itertuples(index=False))


def read_rows(file: Path) -> pd.DataFrame:
    """A table of texts with the columns file and label, and perhaps others."""
    try:
        table = pd.read_csv(file, dtype=str, keep_default_na=False, encoding="utf-8-sig").fillna("")
        if not isinstance(table.index, pd.RangeIndex):
            raise ValueError("its rows have more fields than its first line")
        if not {"file", "label"} <= {*table}:
            raise ValueError(f"it has {some(table.columns)}")
        return table
    except (OSError, ValueError) as error:
        raise UserError(f"{file} must be a table (CSV, commas, UTF-8) with columns file and label: {error}") from error
