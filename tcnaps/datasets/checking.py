"""Looks through the original files of a dataset without preparing it: counts, unreadable images, duplicates."""

import hashlib
from dataclasses import dataclass

from tqdm.auto import tqdm

from tcnaps.datasets.arrays import in_parallel
from tcnaps.datasets.files import Files
from tcnaps.datasets.listing_scan import remarks
from tcnaps.datasets.preparing import SplitLayout, count

KINDS = ("across splits", "in several classes", "within a class")
SHOWN = 10  # groups of duplicates


@dataclass(frozen=True)
class Check:
    """What was found.

    Attributes:
        layouts: what every split would hold if all images could be read.
        unreadable: images that can't be read, and why.
        duplicates: groups of images that have the same pixels once they are resized: kind, and the images.
        remarks: what else a user of the dataset should know.
    """

    layouts: dict[str, SplitLayout]
    unreadable: list[str]
    duplicates: list[tuple[str, list[str]]]
    remarks: list[str]

    def lines(self) -> list[str]:
        """The report."""
        lines = [f"{split}: {layout}" for split, layout in self.layouts.items()]
        lines.append(count(len(self.unreadable), "unreadable image", "unreadable images"))
        lines += [f"unreadable: {image}" for image in self.unreadable]
        for kind in KINDS:
            if number := sum(kind == other for other, _ in self.duplicates):
                lines.append(f"{count(number, 'group', 'groups')} of images with the same pixels, {kind}")
        lines += ["  " + " = ".join(images[:SHOWN]) for _, images in self.duplicates[:SHOWN]]
        return [*lines, *([] if self.duplicates else ["no duplicates"]), *self.remarks]


def check(files: Files) -> Check:
    """Decodes every image of a dataset and writes nothing.

    Raises:
        DatasetError: files are missing, or the dataset contradicts itself.
    """
    files.fetch()
    files.stamp()
    found, groups, unreadable = files.scan(), {}, []

    def described(place: tuple[str, int]) -> str:
        image, class_name = found.image(*place)
        return f"{' '.join(map(str, [image.path, *image.position]))} ({place[0]}, {class_name})"

    def kind(places: list[tuple[str, int]]) -> str:
        classes = {(split, found.image(split, row)[1]) for split, row in places}
        return KINDS[2] if len(classes) == 1 else KINDS[len({split for split, _ in classes}) == 1]

    work, n_jobs = files.work(found)
    with tqdm(total=found.n_images, desc=f"{files.name}, checked", unit="image", leave=False, disable=None) as bar:
        for chunk, (pixels, reasons) in in_parallel(work, found.chunks(), n_jobs):
            for number in range(chunk.n_images):
                place = chunk.split, chunk.start + number
                if number in reasons:
                    unreadable.append(f"{described(place)}: {reasons[number]}")
                else:
                    digest = hashlib.blake2b(pixels[number], digest_size=16).digest()
                    groups.setdefault(digest, []).append(place)
            bar.update(chunk.n_images)
    duplicates = [(kind(places), list(map(described, places))) for places in groups.values() if len(places) > 1]
    duplicates.sort(key=lambda group: KINDS.index(group[0]))
    return Check(found.layouts, unreadable, duplicates, [*found.listing.notes, *remarks(found.layouts)])
