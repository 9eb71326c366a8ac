"""`Episode`: the images and labels of one few-shot task, checked once."""

from dataclasses import dataclass, field, fields

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from tcnaps.datasets.image_source import ImageSource
from tcnaps.episodes.sampling import Draw
from tcnaps.method.checks import check_support_labels


@dataclass(frozen=True)
class Episode:
    """One few-shot task. The model sees images and support labels; query labels are for the loss and the scoring.

    Attributes:
        support_images, query_images, unlabelled_images: RGB, scaled to [-1, 1].
        support_labels: 0, ..., way − 1, each at least once.
        query_labels: of classes in the support set; None where they are unknown.
        unlabelled_images: images of no known class that may help to refine the classes, or None.
        draw: where the images came from, or None for images from elsewhere.

    Raises:
        ValueError: empty support or query set, sizes that differ, pixels that are not finite, a class without a
            support image, or a query label that is not in the support set.
    """

    support_images: Float[Tensor, "n_support 3 height width"]
    support_labels: Int[Tensor, "_n_support"]
    query_images: Float[Tensor, "n_query 3 height width"]
    query_labels: Int[Tensor, "_n_query"] | None = None
    unlabelled_images: Float[Tensor, "n_unlabelled 3 height width"] | None = None
    draw: Draw | None = None
    way: int = field(init=False)

    def __post_init__(self) -> None:
        sets = {"support": self.support_images, "query": self.query_images, "unlabelled": self.unlabelled_images}
        for name, images in sets.items():
            if images is None:
                continue
            if len(images) == 0 and name != "unlabelled":
                raise ValueError(f"the {name} set is empty; an episode needs at least one {name} image")
            if not images.sum().isfinite() and not images.isfinite().all():  # the sum alone says so sooner
                broken = (~images.isfinite().flatten(1).all(1)).nonzero().flatten().tolist()
                raise ValueError(
                    f"{name} image(s) {broken[:5]} have pixels that are not finite (NaN or infinite); "
                    "check how they were read and scaled"
                )
        if len(self.support_labels) != len(self.support_images):
            raise ValueError(f"{len(self.support_images)} support images but {len(self.support_labels)} support labels")
        object.__setattr__(self, "way", check_support_labels(self.support_labels))
        if self.query_labels is None:
            return
        if len(self.query_labels) != len(self.query_images):
            raise ValueError(f"{len(self.query_images)} query images but {len(self.query_labels)} query labels")
        unknown = [k for k in self.query_labels.unique().tolist() if not 0 <= k < self.way]
        if unknown:
            raise ValueError(
                f"query label {unknown[0]} has no class in the support set, whose labels are 0, ..., "
                f"{self.way - 1}; give the class a support image or leave its queries out"
            )

    @classmethod
    def unchecked(cls, way: int, **contents: Tensor | Draw | None) -> "Episode":
        """For contents that are known to be right: to look at what is on a GPU is to wait for it.

        Args:
            contents: the other attributes; those left out are None.
        """
        episode = object.__new__(cls)
        for attribute in fields(cls):
            object.__setattr__(episode, attribute.name, contents.get(attribute.name))
        object.__setattr__(episode, "way", way)
        return episode

    @property
    def shots(self) -> Int[Tensor, "way"]:
        """Support images of every class."""
        return self.support_labels.bincount(minlength=self.way)

    def to(self, device: torch.device | str) -> "Episode":
        """The same episode on another device."""
        moved = {
            name: None if (value := getattr(self, name)) is None else value.to(device, non_blocking=True)
            for name in ("support_images", "support_labels", "query_images", "query_labels", "unlabelled_images")
        }
        return Episode.unchecked(self.way, **moved, draw=self.draw)


def scale_pixels(
    images: UInt8[np.ndarray, "n height width 3"] | UInt8[Tensor, "n height width 3"],
) -> Float[Tensor, "n 3 height width"]:
    """Bytes to numbers in [-1, 1], channels-last in memory (the layout in which the convolutions are fastest)."""
    if isinstance(images, np.ndarray):  # the same numbers as below, several times as fast
        pixels = np.divide(images, np.float32(127.5), dtype=np.float32)
        pixels -= 1
        return torch.from_numpy(pixels).permute(0, 3, 1, 2)
    return (images.float() / 127.5 - 1).permute(0, 3, 1, 2)


def in_range(images: Float[Tensor, "n 3 height width"], pixel_range: tuple[int, int]) -> Tensor:
    """From [-1, 1], in which episodes are, to the range that a network's weights were trained on."""
    return images if pixel_range == (-1, 1) else (images + 1) / 2


def load_episode(source: ImageSource, draw: Draw) -> Episode:
    """Fetches the images that `sampling.draw_episode` chose."""
    return Episode(
        support_images=scale_pixels(source.images[draw.support_images]),
        support_labels=torch.from_numpy(draw.support_labels),
        query_images=scale_pixels(source.images[draw.query_images]),
        query_labels=torch.from_numpy(draw.query_labels),
        draw=draw,
    )
