"""Looks through the original files of a dataset without preparing it: counts, unreadable images, duplicates."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from tqdm.auto import tqdm

from tcnaps.datasets.decoding_jobs import Chunk, Decoded
from tcnaps.datasets.decoding_workers import decode_all
from tcnaps.datasets.files import Files
from tcnaps.datasets.listing_scan import chunks, remarks
from tcnaps.datasets.preparing import SplitLayout, count

SHOWN = 10  # groups of duplicates
DIGEST_BYTES = 16


@dataclass(frozen=True)
class CheckedImage:
    """An image of a dataset; `reason` says why it can't be read, if it can't."""

    file: str
    split: str
    class_name: str
    reason: str = ""


@dataclass(frozen=True)
class Check:
    """What was found.

    Attributes:
        layouts: what every split would hold, could all images be read.
        unreadable: images that can't be, in the order of the arrays.
        duplicates: groups of images with the same pixels once they are resized, in that order too.
        remarks: what else a user of the dataset should know.
    """

    layouts: dict[str, SplitLayout]
    unreadable: list[CheckedImage]
    duplicates: list[list[CheckedImage]]
    remarks: list[str]

    def lines(self) -> list[str]:
        """The report, a line each."""
        counts = [
            f"{split}: {len(layout.class_names):,} classes, {sum(layout.class_sizes):,} images"
            for split, layout in self.layouts.items()
        ]
        bad = [f"unreadable: {_described(image)}: {image.reason}" for image in self.unreadable]
        kinds = Counter(_kind(group) for group in self.duplicates)
        same = [f"{count(n, 'group', 'groups')} of images with the same pixels, {k}" for k, n in sorted(kinds.items())]
        for group in sorted(self.duplicates, key=_kind)[:SHOWN]:  # across splits first
            same.append("  " + " = ".join(map(_described, group[:SHOWN])))
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
    starts = dict(zip(found.layouts, np.cumsum([0, *(sum(x.class_sizes) for x in found.layouts.values())])))
    digests = np.zeros((found.n_images, DIGEST_BYTES), np.uint8)  # all 0: unreadable
    reasons: dict[int, str] = {}
    with tqdm(total=found.n_images, desc=f"{files.name}, checked", unit="image", leave=False, disable=None) as bar:

        def done(chunk: Chunk, decoded: Decoded) -> None:
            first = int(starts[chunk.split]) + chunk.start
            for number, digest in enumerate(decoded.images):
                if digest:
                    digests[first + number] = np.frombuffer(digest, np.uint8)
            reasons.update((first + number, reason) for number, reason in decoded.unreadable)
            bar.update(len(chunk.images))

        decode_all(files.job(found), chunks(found.listing), done, files.n_processes(found))

    def image(number: int) -> CheckedImage:
        split = [name for name, start in starts.items() if start <= number][-1]
        file, class_name = found.image(split, number - int(starts[split]))
        position = f" {file.position}" if file.position else ""
        return CheckedImage(f"{file.path}{position}", split, class_name, reasons.get(number, ""))

    duplicates = [list(map(image, group)) for group in _groups(digests)]
    notes = [*found.listing.notes, *remarks(found.layouts)]
    return Check(found.layouts, [image(number) for number in sorted(reasons)], duplicates, notes)


def _groups(digests: np.ndarray) -> list[list[int]]:
    """Numbers of rows that are equal, but not 0, at least two together."""
    words = digests.view(np.uint64)
    order = np.lexsort(words.T)  # stable: equal rows stay in order
    ends = np.flatnonzero((words[order[1:]] != words[order[:-1]]).any(1)) + 1
    groups = [group.tolist() for group in np.split(order, ends) if len(group) > 1 and words[group[0]].any()]
    return sorted(groups)


def _kind(group: list[CheckedImage]) -> str:
    if len({image.split for image in group}) > 1:
        return "across splits"
    return "in several classes" if len({image.class_name for image in group}) > 1 else "within a class"


def _described(image: CheckedImage) -> str:
    return f"{image.file} ({image.split}, {image.class_name})"
