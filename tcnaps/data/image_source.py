"""A prepared dataset: class-indexed images. Code that uses images needs this module alone."""

from dataclasses import dataclass

import numpy as np

from tcnaps.config.errors import UserError

SPLITS = ("train", "valid", "test")


class DatasetError(UserError):
    """Something is wrong with a dataset, a split or a prepared file; the message names it and the remedy."""


@dataclass(frozen=True, eq=False)
class ImageSource:
    """Class-indexed images of one dataset and split."""

    dataset: str
    split: str  # "train", "valid" or "test"
    images: np.ndarray  # uint8 (n, size, size, 3), memory-mapped and read-only; images of a class lie together
    class_names: tuple[str, ...]  # unique
    class_starts: np.ndarray  # int64 (n_classes + 1,); class k is images[class_starts[k]:class_starts[k + 1]]
    superclasses: tuple[str, ...] | None = None  # one name per class, such as the script of a character
    spans: tuple[np.ndarray, ...] | None = None  # int64, the classes below each inner node of a hierarchy (ImageNet's)
    digest: str = ""  # of the images' file when it was made, and of their division into classes

    def __str__(self) -> str:
        groups = f" in {len(set(self.superclasses)):,} superclasses" if self.superclasses else ""
        return f"{self.n_classes:,} classes{groups}, {len(self.images):,} images"

    @property
    def n_classes(self) -> int:
        return len(self.class_names)

    @property
    def class_sizes(self) -> np.ndarray:
        return np.diff(self.class_starts)

    def images_of(self, class_index: int) -> np.ndarray:
        """All images of a class, uint8 (n, size, size, 3)."""
        return self.images[self.class_starts[class_index] : self.class_starts[class_index + 1]]
