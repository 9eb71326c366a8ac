"""Checks of an episode's labels and features; each error names the class or image."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

Features = Tensor | np.ndarray | Sequence  # (n, d) floating-point numbers
Labels = Tensor | np.ndarray | Sequence  # (n,) integers


def as_features(sets: Mapping[str, Features | None]) -> dict[str, Tensor]:
    """Support, query and unlabelled features as (n, d) tensors; None is an empty set, half becomes float32."""
    tensors: dict[str, Tensor] = {}
    for name, features in sets.items():
        tensor = tensors["support"][:0] if features is None else _as_tensor(features, f"{name} features")
        width = tensors.get("support", tensor).shape[-1:]
        if tensor.dim() != 2 or tensor.shape[1:] != width or not tensor.is_floating_point():
            raise ValueError(
                f"{name} features have the shape {tuple(tensor.shape)} and are {tensor.dtype}; they must be (n, d) "
                "floating-point numbers, one row per image, with the same d in all sets"
            )
        tensors[name] = tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
    return tensors


def check_finite(sets: Mapping[str, Tensor]) -> None:
    """Raises a ValueError that names images whose features are not finite."""
    for name, features in sets.items():
        rows = (~features.isfinite().all(1)).nonzero().flatten().tolist()
        if rows:
            raise ValueError(f"{name} features of image(s) {rows[:5]} are not finite; check the images and the weights")


def as_labels(labels: Labels, features: Tensor, name: str) -> Int[Tensor, "n"]:
    """Labels as int64, on the features' device; a ValueError unless they are integers, one for each row."""
    tensor = _as_tensor(labels, f"{name} labels")
    if tensor.numel() and (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool):
        raise ValueError(f"{name} labels must be integers 0, ..., way − 1, not {tensor.dtype}")
    if tensor.shape != features.shape[:1]:
        raise ValueError(
            f"there are {len(features)} {name} images and {name} labels of shape {tuple(tensor.shape)}; "
            "one label is needed for each image"
        )
    return tensor.to(features.device, torch.int64)


def check_support_labels(labels: Int[Tensor, "n_support"]) -> list[int]:
    """The shots of an episode; a ValueError unless its support labels are 0, ..., way − 1, each at least once."""
    present, shots = (values.tolist() for values in labels.unique(return_counts=True))
    if not present:
        raise ValueError("the support set is empty; every class needs at least one support image")
    if present[0] != 0:
        raise ValueError(f"support labels start at {present[0]}; number the episode's classes 0, ..., way - 1")
    if present[-1] != len(present) - 1:
        missing = next(k for k, label in enumerate(present) if label != k)
        raise ValueError(f"class {missing} has no support image; give it one or number the classes without gaps")
    return shots


def _as_tensor(values: Features | Labels, name: str) -> Tensor:
    try:
        return values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{name} can't be read as numbers: {error}. For labels that are names, use "
            "numpy.unique(names, return_inverse=True)[1]"
        ) from error
