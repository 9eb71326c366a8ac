"""Checks of an episode's labels and features that more than one module needs; each error names the class or image."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

Features = Tensor | np.ndarray | Sequence  # (n, d) floating-point numbers
Labels = Tensor | np.ndarray | Sequence  # (n,) integers


def as_features(sets: Mapping[str, Features | None]) -> dict[str, Tensor]:
    """The features of an episode's support, query and other images as tensors of one kind.

    Half precision becomes float32, in which the clustering's decompositions exist. A set that is None is empty.

    Raises:
        ValueError: features that are no (n, d) floating-point numbers, that differ from the support's in width, kind or
            device, or that are not finite.
    """
    tensors: dict[str, Tensor] = {}
    for name, features in sets.items():
        if features is None:
            support = tensors["support"]
            tensors[name] = support.new_zeros(0, support.shape[1])
        else:
            tensors[name] = _as_matrix(features, name)
            _check_like(tensors[name], tensors["support"], name)
    return tensors


def as_labels(labels: Labels, features: Tensor, name: str) -> Int[Tensor, "n"]:
    """Labels as int64, on the features' device.

    Raises:
        ValueError: labels that are no integers, or not one for each row of `features`.
    """
    try:
        tensor = labels if isinstance(labels, Tensor) else torch.from_numpy(np.array(labels))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{name} labels must be integers 0, ..., way − 1, not {type(labels).__name__} of "
            f"{_kind(labels)}; number them, for instance with numpy.unique(labels, return_inverse=True)[1]"
        ) from error
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        if tensor.numel():
            raise ValueError(f"{name} labels must be integers 0, ..., way − 1, not {tensor.dtype}")
    if tensor.shape != features.shape[:1]:
        raise ValueError(
            f"there are {len(features)} {name} images and {name} labels of shape {tuple(tensor.shape)}; "
            "one label is needed for each image"
        )
    return tensor.to(features.device, torch.int64)


def check_support_labels(labels: Int[Tensor, "n_support"]) -> list[int]:
    """Returns the shots of an episode whose support labels are 0, ..., way − 1, each at least once.

    Raises:
        ValueError: there is no support image, labels do not start at 0, or a class has no support image.
    """
    if len(labels) == 0:
        raise ValueError("the support set is empty; every class needs at least one support image")
    if labels.min() != 0:
        raise ValueError(f"support labels start at {int(labels.min())}; number the episode's classes 0, ..., way - 1")
    present, shots = labels.unique(return_counts=True)
    if len(present) != int(labels.max()) + 1:
        missing = next(k for k, label in enumerate(present.tolist()) if label != k)
        raise ValueError(f"class {missing} has no support image; give it one or number the classes without gaps")
    return shots.tolist()


def _as_matrix(features: Features, name: str) -> Tensor:
    try:
        tensor = features if isinstance(features, Tensor) else torch.from_numpy(np.array(features))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} features can't be read as numbers: {error}") from error
    if tensor.dim() != 2:
        raise ValueError(
            f"{name} features have the shape {tuple(tensor.shape)}; they must be (n, d), one row per image"
        )
    if not tensor.is_floating_point():
        raise ValueError(f"{name} features are {tensor.dtype}; they must be floating-point numbers")
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _check_like(features: Tensor, support: Tensor, name: str) -> None:
    ours, theirs = ((x.shape[1], x.dtype, x.device) for x in (features, support))
    if ours != theirs:
        both = " and ".join(f"{width} × {dtype} on {device}" for width, dtype, device in (ours, theirs))
        raise ValueError(f"{name} and support features are {both}; they must come from the same backbone")
    if not features.sum().isfinite() and not features.isfinite().all():  # the sum alone says so sooner
        rows = (~features.isfinite().all(1)).nonzero().flatten().tolist()
        raise ValueError(f"{name} features of image(s) {rows[:5]} are not finite; check the images and the weights")


def _kind(labels: object) -> str:
    values = np.asarray(labels, dtype=object).ravel()
    return type(values[0]).__name__ if len(values) else "nothing"
