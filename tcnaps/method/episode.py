"""`Episode`, the images and labels of one few-shot task, and checks of them; each error names the class or image."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

Features = Tensor | np.ndarray | Sequence  # (n, d) floating-point numbers
Labels = Tensor | np.ndarray | Sequence  # (n,) integers
SMALLEST = 32  # pixels: the set encoder halves an image five times


@dataclass(eq=False)
class Episode:
    """One few-shot task. The model sees images and support labels; query labels are for the loss and the scoring.

    Images are RGB, channels first, scaled to [-1, 1] (`scale_pixels`), of one size, at least 32 × 32 pixels. A
    ValueError says which images or labels are wrong. Every class needs a support image, every query label its class.
    """

    support_images: Tensor  # n_support × 3 × height × width
    support_labels: Labels  # n_support: 0, ..., way − 1, each at least once; int64 once checked
    query_images: Tensor  # n_query × 3 × height × width
    query_labels: Labels | None = None  # None where they are unknown
    unlabelled_images: Tensor | None = None  # of no known class; they may help to refine the classes
    draw: object | None = None  # where the images came from
    way: int = field(init=False)

    def __post_init__(self) -> None:
        for name in ("support", "query", "unlabelled"):
            images = getattr(self, f"{name}_images")
            if images is not None:
                _check_images(images, self.support_images, name)
        if len(self.support_images) == 0 or len(self.query_images) == 0:
            empty = "query" if len(self.support_images) else "support"
            raise ValueError(f"the {empty} set is empty; an episode needs at least one {empty} image")
        self.support_labels = as_labels(self.support_labels, self.support_images, "support")
        self.way = len(check_support_labels(self.support_labels))
        if self.query_labels is not None:
            self.query_labels = as_labels(self.query_labels, self.query_images, "query")
            if unknown := [k for k in self.query_labels.unique().tolist() if not 0 <= k < self.way]:
                raise ValueError(
                    f"query label {unknown[0]} has no class in the support set, whose labels are 0, ..., "
                    f"{self.way - 1}; give the class a support image or leave its queries out"
                )

    @property
    def shots(self) -> Int[Tensor, "way"]:
        """Support images of every class."""
        return self.support_labels.bincount(minlength=self.way)

    def to(self, device: torch.device | str) -> "Episode":
        """The same episode on another device."""
        sets = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **{name: value.to(device, non_blocking=True) for name, value in sets.items()})


def scale_pixels(
    images: UInt8[np.ndarray, "n height width 3"] | UInt8[Tensor, "n height width 3"],
) -> Float[Tensor, "n 3 height width"]:
    """Bytes to numbers in [-1, 1], channels-last in memory (the layout in which the convolutions are fastest)."""
    if isinstance(images, np.ndarray):  # the same numbers as below, several times as fast
        pixels = np.divide(images, np.float32(127.5), dtype=np.float32)
        pixels -= 1
        return torch.from_numpy(pixels).permute(0, 3, 1, 2)
    return (images.float() / 127.5 - 1).permute(0, 3, 1, 2)


def to_pixel_range(images: Float[Tensor, "n 3 height width"], pixel_range: tuple[int, int]) -> Tensor:
    """From [-1, 1], in which episodes are, to the range that a network's weights were trained on."""
    return images if pixel_range == (-1, 1) else (images + 1) / 2


def _check_images(images: Tensor, support: Tensor, name: str) -> None:
    if not isinstance(images, Tensor) or images.dim() != 4 or images.shape[1] != 3 or not images.is_floating_point():
        form = f"{images.dtype} of shape {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(
            f"{name} images are {form}; they must be floating-point tensors (n, 3, height, width) in [-1, 1]. "
            "scale_pixels makes them from bytes (n, height, width, 3)"
        )
    size, wanted = ("{} × {}".format(*x.shape[2:]) for x in (images, support))
    if size != wanted:
        raise ValueError(f"{name} and support images are {size} and {wanted} pixels; resize them to one size")
    if min(images.shape[2:]) < SMALLEST:
        raise ValueError(f"{name} images are {size} pixels; {SMALLEST} are needed at least")
    if len(images) == 0:
        return
    low, high = (float(value) for value in images.aminmax())
    if not (-1.001 <= low and high <= 1.001):
        broken = (~images.isfinite().flatten(1).all(1)).nonzero().flatten().tolist()
        problem = f"{name} image(s) {broken[:5]} have pixels that are not finite; check how they were read and scaled"
        raise ValueError(
            problem if broken else f"pixels of {name} images lie in [{low:g}, {high:g}]; scale them to [-1, 1]"
        )


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
        if rows := (~features.isfinite().all(1)).nonzero().flatten().tolist():
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
