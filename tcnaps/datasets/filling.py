"""Decodes all images of a scan into arrays: in parallel, resumable, with a report of what can't be read.

Every image has its row in its split's array before any is decoded, so the number of processes changes nothing.
Images that can't be read are taken out in the end and listed, with the reason, in `unreadable.csv` beside the arrays;
the index says how many they were.
"""

import csv
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm

from tcnaps.datasets import journal
from tcnaps.datasets.array_files import header, leave_out
from tcnaps.datasets.decoding_jobs import Chunk, Decoded, Job, digest
from tcnaps.datasets.decoding_workers import decode_all
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing_scan import Scan, chunks, remarks
from tcnaps.datasets.preparing import REPORT, Filled, SplitLayout, count, report

NAMED = 10  # unreadable images that an error names


@dataclass(frozen=True, order=True)
class Unreadable:
    """An image that can't be read: its row in the split's array, were it complete, and what is wrong with it."""

    split: str
    row: int
    reason: str


def fill(
    dataset: str, found: Scan, job: Job, arrays: Mapping[str, Path], key: str, processes: int, refuse: bool
) -> Filled:
    """Decodes all images into the arrays, going on where it was interrupted, and takes out what can't be read.

    Args:
        arrays: split -> .npy file of as many rows as the split has images.
        key: of the journal, which lies beside the arrays.
        refuse: whether an image that can't be read is an error.

    Returns:
        The layouts without what can't be read, and for the index: `files`, a digest of the originals; `resampling`;
        `unreadable`, a number a split; `remarks`.

    Raises:
        DatasetError: an image can't be read and `refuse` is set, no image of a class can be read, or a process died.
        OSError: the arrays can't be written.
    """
    place = next(iter(arrays.values())).parent
    starts = {split: len(header((n, job.image_size, job.image_size, 3))) for split, n in _lengths(found).items()}
    job = replace(job, arrays={split: (str(file), starts[split]) for split, file in arrays.items()})
    unreadable = _decode(dataset, found, job, place / journal.NAME, key, processes)
    if refuse and unreadable:
        lines = [(found.image(image.split, image.row)[0].path, image.reason) for image in unreadable[:NAMED]]
        raise _refusal(dataset, len(unreadable), lines, "nothing was prepared")
    layouts = {split: _without(dataset, found, split, unreadable) for split in arrays}
    for split, file in arrays.items():
        leave_out(file, [image.row for image in unreadable if image.split == split])
    notes = {
        "files": found.digest,
        "resampling": job.resampling,
        "unreadable": {split: sum(image.split == split for image in unreadable) for split in layouts},
        "remarks": [*found.listing.notes, *remarks(layouts)],
    }
    if unreadable:
        _write_report(place / REPORT, found, unreadable)
    for line in report(place, notes):
        tqdm.write(f"{dataset}: {line}", file=sys.stderr)
    return Filled(layouts, notes)


def refuse_reported(dataset: str, place: Path, index: Mapping) -> None:
    """Refuses a dataset of which unreadable images were left out when it was prepared.

    Raises:
        DatasetError: there are any.
    """
    number = sum(index["unreadable"].values())
    if number:
        with open(place / REPORT, newline="", encoding="utf-8", errors="surrogateescape") as stream:
            lines = [(row["file"], row["reason"]) for row in islice(csv.DictReader(stream), NAMED)]
        outcome = f"{place} was made without them and lists all in {REPORT}; delete it afterwards"
        raise _refusal(dataset, number, lines, outcome)


def _lengths(found: Scan) -> dict[str, int]:
    return {split: sum(layout.class_sizes) for split, layout in found.layouts.items()}


def _decode(dataset: str, found: Scan, job: Job, file: Path, key: str, processes: int) -> list[Unreadable]:
    """Decodes what the journal doesn't say is finished; returns the images that can't be read, in order of rows."""
    unreadable: list[Unreadable] = []
    of_files: dict[tuple[str, int], str] = {}  # digests of chunks that are being decoded
    with (
        journal.Journal(file, key) as written,
        tqdm(total=found.n_images, desc=dataset, unit="image", leave=False, disable=None) as bar,
    ):

        def note(chunk: Chunk, failed: Sequence[tuple[int, str]]) -> None:
            unreadable.extend(Unreadable(chunk.split, chunk.start + number, reason) for number, reason in failed)
            bar.update(len(chunk.images))

        def unfinished() -> Iterator[Chunk]:
            for chunk, of_chunk in zip(chunks(found.listing), found.chunk_digests):
                entry = written.finished(chunk.split, chunk.start, of_chunk)
                if entry is not None and entry["pixels"] == _digest_of_rows(job, chunk):
                    note(chunk, entry["unreadable"])
                else:
                    of_files[chunk.split, chunk.start] = of_chunk
                    yield chunk

        def done(chunk: Chunk, decoded: Decoded) -> None:
            place = chunk.split, chunk.start
            written.add(*place, of_files.pop(place), decoded.pixels, decoded.unreadable, decoded.retry)
            note(chunk, decoded.unreadable)

        decode_all(job, unfinished(), done, processes)
    return sorted(unreadable)


def _digest_of_rows(job: Job, chunk: Chunk) -> str:
    """The digest of what the array holds at a chunk's rows."""
    file, first = job.arrays[chunk.split]
    row_bytes = job.image_size * job.image_size * 3
    with open(file, "rb", buffering=0) as stream:
        return digest(os.pread(stream.fileno(), len(chunk.images) * row_bytes, first + chunk.start * row_bytes))


def _without(dataset: str, found: Scan, split: str, unreadable: Sequence[Unreadable]) -> SplitLayout:
    """The layout of a split without the images that can't be read."""
    layout = found.layouts[split]
    starts = np.cumsum([0, *layout.class_sizes])
    failed = [image for image in unreadable if image.split == split]
    lost, _ = np.histogram([image.row for image in failed], starts)
    sizes = np.subtract(layout.class_sizes, lost)
    if (sizes == 0).any():
        k = int(np.flatnonzero(sizes == 0)[0])
        first = next(image for image in failed if image.row >= starts[k])
        others = f", nor of {n_others:,} more" if (n_others := int((sizes == 0).sum()) - 1) else ""
        raise DatasetError(
            f"Dataset '{dataset}', split '{split}': no image of class '{layout.class_names[k]}' can be read{others}. "
            f"The first is {found.image(split, first.row)[0].path}: {first.reason} Repair the images or remove the "
            "class."
        )
    return replace(layout, class_sizes=tuple(map(int, sizes)))


def _refusal(dataset: str, number: int, lines: Sequence[tuple[str, str]], outcome: str) -> DatasetError:
    shown = "".join(f"\n  {file}: {reason}" for file, reason in lines)
    more = f"\n  and {number - len(lines):,} more" if number > len(lines) else ""
    return DatasetError(
        f"Dataset '{dataset}': {count(number, 'image', 'images')} can't be read; {outcome}. Repair or remove what is "
        f"listed here, or set the dataset's `unreadable` to 'leave out'.{shown}{more}"
    )


def _write_report(file: Path, found: Scan, unreadable: Sequence[Unreadable]) -> None:
    """A CSV of the images that can't be read; `position` says where in its file an image is, unless it is all of it."""
    temporary = file.with_name(f"{file.name}.partial")
    with temporary.open("w", newline="", encoding="utf-8", errors="surrogateescape") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["file", "class", "split", "reason", "position"])
        for bad in unreadable:
            image, name = found.image(bad.split, bad.row)
            writer.writerow([image.path, name, bad.split, bad.reason, " ".join(map(str, image.position))])
    os.replace(temporary, file)
