"""Checks of an episode's labels and features that more than one module needs; each error names the class or image."""

from jaxtyping import Int
from torch import Tensor


def check_features(sets: dict[str, Tensor]) -> None:
    """Checks the features of an episode's support, query and other images against the first set's.

    Raises:
        ValueError: features of different width or kind, or features that are not finite.
    """
    first = next(iter(sets.values()))
    for name, features in sets.items():
        if features.shape[1] != first.shape[1] or features.dtype != first.dtype:
            both = f"{features.shape[1]} × {features.dtype}, not {first.shape[1]} × {first.dtype}"
            raise ValueError(f"{name} features are {both} as the support's; they must come from the same backbone")
        if not features.sum().isfinite() and not features.isfinite().all():  # the sum alone says so sooner
            rows = (~features.isfinite().all(1)).nonzero().flatten().tolist()
            raise ValueError(f"{name} features of image(s) {rows[:5]} are not finite; check the images and the weights")


def check_support_labels(labels: Int[Tensor, "n_support"]) -> int:
    """Returns the way of an episode whose support labels are 0, ..., way − 1, each at least once.

    Raises:
        ValueError: there is no support image, labels do not start at 0, or a class has no support image.
    """
    if len(labels) == 0:
        raise ValueError("the support set is empty; every class needs at least one support image")
    if labels.min() != 0:
        raise ValueError(f"support labels start at {int(labels.min())}; number the episode's classes 0, ..., way - 1")
    missing = (labels.bincount() == 0).nonzero().flatten().tolist()
    if missing:
        raise ValueError(f"class {missing[0]} has no support image; give it one or number the classes without gaps")
    return int(labels.max()) + 1
