"""Where the time of an episode goes on a GPU, what share of its arithmetic is used, and how long the protocol takes.

As in an evaluation: episodes share batches, and every one of ten refinement steps is recorded. All in this process, in
turns; the host waits for the device before and after each.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from counting import per_image
from data_rows import write_jpegs
from measuring import ratio
from rows import EPISODES, PRECISIONS, contents, episode, own_model, plain

from tcnaps.config.settings import FixedProtocol, Folder
from tcnaps.data import preparation
from tcnaps.data.image_source import ImageSource
from tcnaps.data.preparing import ensure_prepared
from tcnaps.episodes.loading import read_episodes
from tcnaps.episodes.sampling import draw_episode
from tcnaps.method.clustering import trajectory
from tcnaps.method.episode import Episode
from tcnaps.method.model import TransductiveCNAPS
from tcnaps_suite.experiments.speed import PARTS

STEPS, IMAGES_AT_ONCE = 10, 512  # a study's usual settings
PROTOCOL = 13 * 600  # episodes: of the paper's datasets
COUNTED = {"task encoder": "set encoder", "backbone": "backbone"}


def measure_device(
    device: torch.device, size: int, repetitions: int, settings: dict[str, tuple[int, int, int]] = EPISODES
) -> Iterator[dict]:
    """Rows like those of `run.measure`, seconds per episode; the last setting is to be the largest.

    For networks, `share` is of the operations per second that one large matrix product reaches in the same precision.
    """
    limits = {precision: matrix_limit(device, dtype) for precision, dtype in PRECISIONS.items()}
    counted = per_image(size)
    for precision, limit in limits.items():
        print(f"One large matrix product, {precision}: {limit / 1e12:.1f} · 10¹² operations per second")
    for name, (way, shot, queries) in settings.items():
        n_images = way * (shot + queries)
        together = max(1, IMAGES_AT_ONCE // n_images)
        tasks = [episode(way, shot, queries, size, seed).to(device) for seed in range(together)]
        calls = {}
        for precision in PRECISIONS:
            calls |= {(part, precision): call for part, call in parts(own_model(precision).to(device), tasks).items()}
        calls["whole", "direct"] = direct(device, tasks)
        timed = in_turns(calls, repetitions, device)
        for part in (*PARTS, "whole"):
            measured = {}
            for (which, implementation), (times, n_bytes) in timed.items():
                if which == part:
                    own = [seconds / together for seconds in times]
                    measured[implementation] = {"seconds": statistics.median(own), "times": own, "bytes": n_bytes}
            for precision, row in measured.items():
                if part in COUNTED:
                    operations = counted[COUNTED[part]]["operations"] * n_images
                    row["share"] = operations / row["seconds"] / limits[precision]
                elif part == "whole" and precision != "direct":
                    row |= ratio(row["times"], measured["direct"]["times"])
            yield _shown(_row(f"{name}: {part}", size, device, measured))
    loading = loading_row(device, size, repetitions, (way, shot, queries))
    yield _shown(loading)
    for precision in PRECISIONS:
        seconds = [row[which]["seconds"] for row, which in ((measured, precision), (loading["measured"], "none"))]
        print(
            f"The protocol, at most, with all episodes like the last, {precision}: {PROTOCOL} × ({seconds[0]:.4f} + "
            f"{seconds[1]:.4f} s) = {PROTOCOL * sum(seconds) / 60:.1f} minutes"
        )


def parts(model: TransductiveCNAPS, tasks: list[Episode]) -> dict[str, Callable[[], object]]:
    """Calls for each part of an episode, for all tasks together, on the result of the part before."""
    images = [torch.cat([task.support_images, task.query_images]) for task in tasks]
    with torch.no_grad():
        films, features = list(map(model.adapt, tasks)), list(map(model.features, tasks))
    calls = {
        "task encoder": lambda: [model.embed(task) for task in tasks],
        "backbone": lambda: list(map(model.extract, images, films)),
        "clustering": lambda: [trajectory(*of_task, model.head, STEPS) for of_task in features],
        "whole": lambda: [trajectory(*of_task, model.head, STEPS) for of_task in map(model.features, tasks)],
    }
    return {part: torch.no_grad()(call) for part, call in calls.items()}


def direct(device: torch.device, tasks: list[Episode]) -> Callable[[], object]:
    """Labels of the tasks by the direct implementation, one after the other."""
    model, given = plain().to(device), [contents(task) for task in tasks]
    return lambda: [model.classify(*of_task, STEPS, STEPS) for of_task in given]


def in_turns(
    calls: dict[tuple, Callable[[], object]], repetitions: int, device: torch.device
) -> dict[tuple, tuple[list[float], int | None]]:
    """For each call: seconds of all turns but the first, and the bytes that it adds to the device's memory."""
    times: dict[tuple, list[float]] = {name: [] for name in calls}
    peaks = dict.fromkeys(calls)
    for turn in range(repetitions + 1):
        for name, call in calls.items():
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
                before = torch.cuda.memory_allocated(device)
            seconds = _seconds(call, device)
            if device.type == "cuda":
                peaks[name] = torch.cuda.max_memory_allocated(device) - before
            if turn > 0:
                times[name].append(seconds)
    return {name: (times[name], peaks[name]) for name in calls}


def matrix_limit(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second of one large matrix product."""
    n = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    return 2 * n**3 / min(_seconds(lambda: a @ b, device) for _ in range(10))


def loading_row(device: torch.device, size: int, repetitions: int, setting: tuple[int, int, int]) -> dict:
    """Seconds per episode from files to the device, without worker processes and with two."""
    way, shot, queries = setting
    with tempfile.TemporaryDirectory() as place:
        write_jpegs(Path(place) / "images", way, shot + queries, size)
        dataset = Folder(source="folder", domain="in", path=str(Path(place) / "images"))
        source = ensure_prepared(preparation("bench", dataset, size), Path(place) / "prepared").splits["train"]
        protocol = FixedProtocol(way=way, shot=shot, queries_per_class=queries)
        draws = [draw_episode(source, protocol, 0, index) for index in range(10)]
        names = {("none",): 0, ("two workers",): 2}
        calls = {name: _load(workers, device, source, draws) for name, workers in names.items()}
        timed = in_turns(calls, repetitions, device)
    measured = {}
    for (name,), (times, n_bytes) in timed.items():
        own = [seconds / len(draws) for seconds in times]
        measured[name] = {"seconds": statistics.median(own), "times": own, "bytes": n_bytes}
    return _row(f"loading {way * (shot + queries)} images", size, device, measured)


def _load(workers: int, device: torch.device, source: ImageSource, draws: list) -> Callable[[], object]:
    def load():
        for _ in read_episodes(((source, draw) for draw in draws), workers, device):
            pass

    return load


def _row(name: str, size: int, device: torch.device, measured: dict) -> dict:
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {"group": "device", "name": name, "size": size, "device": kind, "measured": measured}


def _shown(row: dict) -> dict:
    """Prints the row and returns it."""
    for number, (implementation, one) in enumerate(row["measured"].items()):
        text = f"{'device':>10} {row['name'] if number == 0 else '':<34} {implementation:<12}"
        text += f"{1e3 * one['seconds']:>10.2f} ms per episode"
        if one["bytes"]:
            text += f" {one['bytes'] / 1e9:>6.2f} GB"
        if "share" in one:
            text += f"  {100 * one['share']:.0f}% of a matrix product's operations per second"
        if "ratio" in one:
            text += f" {one['ratio']:>7.2f}× ({one['ratio_low']:.2f}–{one['ratio_high']:.2f})"
        print(text, flush=True)
    return row


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start
