"""Preparing images, loading episodes and start-up. There is no direct implementation to compare these with."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from measuring import in_turns, ratio
from PIL import Image

from tcnaps.config.settings import FixedProtocol, Folder
from tcnaps.data import preparation
from tcnaps.data.image_source import ImageSource
from tcnaps.data.preparing import ensure_prepared
from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode

N_CLASSES, N_IMAGES, SIZE = 40, 250, 64
EPISODES = 40


def measure_data(repetitions: int) -> list[dict]:
    """Rows like those of `run.measure`, all timed in this process. `images` is the number of images timed."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_jpegs(folder / "images", N_CLASSES, N_IMAGES, SIZE)
        dataset = Folder(source="folder", domain="in", path=str(folder / "images"))
        calls = {"library": _preparation(dataset, folder), "Pillow in a loop": _plain(folder)}
        rows = [_row("preparation", calls, repetitions, N_CLASSES * N_IMAGES)]
        splits, _ = ensure_prepared(preparation("bench", dataset, SIZE), folder / "prepared")
        rows += _loading(splits["train"], repetitions)
    light = "tcnaps.figures.tables, tcnaps.figures.results, tcnaps.evaluation.statistics"
    starts = "tcnaps", light, "torch", "tcnaps.method.model"
    rows += [_row(f"import {names}", {"start": _start(names)}, repetitions) for names in starts]
    return rows


def _row(name: str, calls: dict[str, Callable[[], object]], repetitions: int, images: int | None = None) -> dict:
    """Times the calls in turns, after a warm-up."""
    measured = in_turns(calls, repetitions)
    last = list(calls)[-1]
    for number, (which, row) in enumerate(measured.items()):
        text = f"{'data' if number == 0 else '':>10} {name if number == 0 else '':<55} {which:<18} "
        text += f"{1e3 * row['seconds']:>9.1f} ms"
        if images:
            text += f" {images / row['seconds']:>9,.0f} images per second"
        if which != last:
            row |= ratio(row["times"], measured[last]["times"])
            text += f" {row['ratio']:.2f}× ({row['ratio_low']:.2f}–{row['ratio_high']:.2f})"
        print(text, flush=True)
    return {"group": "data", "name": name, "size": SIZE, "images": images, "measured": measured}


def write_jpegs(folder: Path, n_classes: int, n_images: int, size: int) -> None:
    """Writes pictures with edges and noise. Their files are about as large as those of photographs of that size."""
    generator = np.random.default_rng(0)
    for k in range(n_classes):
        (folder / "train" / f"{k}").mkdir(parents=True)
        for i in range(n_images):
            coarse = generator.integers(0, 255, (8, 8, 3), np.uint8)
            image = np.asarray(Image.fromarray(coarse).resize((size, size))) + generator.normal(0, 12, (size, size, 3))
            picture = Image.fromarray(image.clip(0, 255).astype(np.uint8))
            picture.save(folder / "train" / f"{k}" / f"{i}.jpg", quality=90)


def _preparation(dataset: Folder, folder: Path) -> Callable[[], object]:
    numbers = iter(range(10_000))
    return lambda: ensure_prepared(preparation("bench", dataset, SIZE), folder / f"prepared-{next(numbers)}")


def _plain(folder: Path) -> Callable[[], object]:
    """A bare loop over Pillow into one array."""
    files = sorted((folder / "images").rglob("*.jpg"))

    def prepare():
        pixels = np.stack([np.asarray(Image.open(file).convert("RGB").resize((SIZE, SIZE))) for file in files])
        np.save(folder / "plain.npy", pixels)

    return prepare


def _loading(source: ImageSource, repetitions: int) -> list[dict]:
    """Loading episodes of 500 images, from a disk and from the system's cache."""
    protocol = FixedProtocol(way=20, shot=15, queries_per_class=10)

    def forget():
        with open(source.images.filename) as file:
            os.fsync(file)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def load():
        for i in range(EPISODES):
            load_episode(source, draw_episode(source, protocol, 0, i))

    def load_from_the_disk():
        forget()
        load()

    calls = {"loading from the disk": load_from_the_disk, "loading from the cache": load}
    return [_row(name, {"tcnaps": call}, repetitions, EPISODES * 500) for name, call in calls.items()]


def _start(names: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, "-c", f"import {names}"], check=True)
