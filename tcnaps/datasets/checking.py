"""Looks through the original files of a dataset without preparing it: counts, unreadable images, duplicates."""

import hashlib
from collections import Counter
from dataclasses import dataclass

from tqdm.auto import tqdm

from tcnaps.datasets.arrays import in_parallel
from tcnaps.datasets.files import Files
from tcnaps.datasets.preparing import SplitLayout, count

SHOWN = 10  # groups of duplicates


@dataclass(frozen=True)
class CheckedImage:
    """An image of a dataset; `reason` says why it can't be read, if it can't."""

    file: str
    split: str
    class_name: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.file} ({self.split}, {self.class_name})"


@dataclass(frozen=True)
class Check:
    """What was found.

    Attributes:
        layouts: what every split would hold if all images could be read.
        unreadable: images that can't be read, in the order of the arrays.
        duplicates: groups of images that have the same pixels once they are resized.
        remarks: what else a user of the dataset should know.
    """

    layouts: dict[str, SplitLayout]
    unreadable: list[CheckedImage]
    duplicates: list[list[CheckedImage]]
    remarks: list[str]

    def lines(self) -> list[str]:
        """The report."""
        counts = [
            f"{split}: {len(layout.class_names):,} classes, {sum(layout.class_sizes):,} images"
            for split, layout in self.layouts.items()
        ]
        bad = [f"unreadable: {image}: {image.reason}" for image in self.unreadable]
        kinds = Counter(map(_kind, self.duplicates))
        same = [f"{count(n, 'group', 'groups')} of images with the same pixels, {k}" for k, n in sorted(kinds.items())]
        for group in sorted(self.duplicates, key=_kind)[:SHOWN]:  # across splits first
            same.append("  " + " = ".join(map(str, group[:SHOWN])))
        if len(self.duplicates) > SHOWN:
            same.append(f"  and {len(self.duplicates) - SHOWN:,} more")
        number = count(len(bad), "unreadable image", "unreadable images")
        return [*counts, number, *bad, *(same or ["no duplicates"]), *self.remarks]


def check(files: Files) -> Check:
    """Decodes every image of a dataset and writes nothing.

    Raises:
        DatasetError: files are missing, or the dataset contradicts itself.
    """
    files.fetch()
    files.stamp()
    found = files.scan()
    groups: dict[bytes, list[tuple[str, int]]] = {}  # digest of the pixels -> split and row
    unreadable = []
    results = in_parallel(files.work(found.listing), (chunk.task for chunk in found.chunks()), files.n_jobs(found))
    with tqdm(total=found.n_images, desc=f"{files.name}, checked", unit="image", leave=False, disable=None) as bar:
        for chunk, (pixels, reasons) in zip(found.chunks(), results, strict=True):
            for number in range(chunk.n_images):
                place = chunk.split, chunk.start + number
                if number in reasons:
                    unreadable.append((*place, reasons[number]))
                else:
                    digest = hashlib.blake2b(pixels[number], digest_size=16).digest()
                    groups.setdefault(digest, []).append(place)
            bar.update(chunk.n_images)

    def image(split: str, row: int, reason: str = "") -> CheckedImage:
        file, class_name = found.image(split, row)
        position = f" {file.position}" if file.position else ""
        return CheckedImage(f"{file.path}{position}", split, class_name, reason)

    duplicates = [[image(*place) for place in group] for group in groups.values() if len(group) > 1]
    return Check(found.layouts, [image(*place) for place in unreadable], duplicates, found.remarks(found.layouts))


def _kind(group: list[CheckedImage]) -> str:
    if len({image.split for image in group}) > 1:
        return "across splits"
    return "in several classes" if len({image.class_name for image in group}) > 1 else "within a class"
