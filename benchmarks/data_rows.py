"""Preparation of images, loading of episodes, start-up: what has no direct implementation to be compared with."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measuring
import numpy as np
import torch
from PIL import Image

from tcnaps.datasets import open_source, preparation
from tcnaps.datasets.source import ensure_prepared
from tcnaps.loading import Loader
from tcnaps.sampling import draw_episode
from tcnaps.settings import FixedProtocol, Folder

N_CLASSES, N_IMAGES = 40, 100


def measure_data(repetitions: int) -> list[dict]:
    """Rows of seconds; where two things are compared, of both."""
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _write_jpegs(folder / "images")
        dataset = Folder(source="folder", domain="in", path=str(folder / "images"))
        rows += [_preparation(dataset, folder, repetitions), _plain_preparation(folder, repetitions)]
        rows[0] |= {"ratio": rows[1]["seconds"] / rows[0]["seconds"]}
        rows += _loading(dataset, folder, repetitions)
    rows += _imports(repetitions)
    for row in rows:
        rate = f"{row['images'] / row['seconds']:,.0f} images a second" if "images" in row else ""
        ratio = f"{row['ratio']:.2f}×" if "ratio" in row else ""
        print(f"{'data':>10} {row['name']:<60} {1e3 * row['seconds']:>9.1f} ms {rate} {ratio}", flush=True)
    return [{"group": "data", "repetitions": repetitions, **row} for row in rows]


def _write_jpegs(folder: Path) -> None:
    """Pictures with edges and noise, 64 pixels wide, about as large as photographs of that size."""
    generator = np.random.default_rng(0)
    for k in range(N_CLASSES):
        (folder / "train" / f"{k}").mkdir(parents=True)
        for i in range(N_IMAGES):
            coarse = generator.integers(0, 255, (8, 8, 3), np.uint8)
            image = np.asarray(Image.fromarray(coarse).resize((64, 64))) + generator.normal(0, 12, (64, 64, 3))
            picture = Image.fromarray(image.clip(0, 255).astype(np.uint8))
            picture.save(folder / "train" / f"{k}" / f"{i}.jpg", quality=90)


def _median(call, repetitions: int) -> float:
    return float(np.median([measuring.seconds(call) for _ in range(repetitions)]))


def _preparation(dataset: Folder, folder: Path, repetitions: int) -> dict:
    numbers = iter(range(10_000))

    def prepare():
        ensure_prepared(preparation("bench", dataset, 64), folder / f"prepared-{next(numbers)}")

    return {"name": "preparation of JPEGs of 64 pixels", "images": N_CLASSES * N_IMAGES,
            "seconds": _median(prepare, repetitions)}


def _plain_preparation(folder: Path, repetitions: int) -> dict:
    """One process, Pillow, an array."""
    files = sorted((folder / "images").rglob("*.jpg"))

    def prepare():
        pixels = np.stack([np.asarray(Image.open(file).convert("RGB").resize((64, 64))) for file in files])
        np.save(folder / "plain.npy", pixels)

    return {"name": "the same by a loop over Pillow", "images": len(files), "seconds": _median(prepare, repetitions)}


def _loading(dataset: Folder, folder: Path, repetitions: int) -> list[dict]:
    """Episodes of 500 images, with a consumer that waits (for a GPU, say) or one that computes on all cores."""
    source = open_source("bench", dataset, "train", 64, folder / "prepared")
    protocol = FixedProtocol(way=20, shot=15, queries_per_class=10)
    weight, rows = torch.randn(64, 3, 3, 3), []

    def compute(episode):
        torch.nn.functional.conv2d(episode.support_images, weight)

    for name, consume in (("loading alone", lambda episode: None), ("loading for a device that takes 20 ms",
                                                                    lambda episode: time.sleep(0.02)),
                          ("loading beside computation on all cores", compute)):
        seconds = {}
        for workers in (0, 2):
            with Loader(workers) as loader:
                def run(loader=loader, consume=consume):
                    for episode in loader.episodes((source, draw_episode(source, protocol, 0, i)) for i in range(40)):
                        consume(episode)
                run()
                seconds[workers] = _median(run, repetitions)
        rows.append({"name": f"{name}, 40 episodes of 500 images, 2 workers against none", "images": 40 * 500,
                     "seconds": seconds[2], "other_seconds": seconds[0], "ratio": seconds[0] / seconds[2]})
    return rows


def _imports(repetitions: int) -> list[dict]:
    rows = []
    for code in ("import tcnaps", "import tcnaps.tables, tcnaps.figures, tcnaps.statistics", "import torch",
                 "import tcnaps.model"):
        def start(code=code):
            subprocess.run([sys.executable, "-c", code], check=True)
        start()
        rows.append({"name": f"python -c '{code}'", "seconds": _median(start, repetitions)})
    return rows
