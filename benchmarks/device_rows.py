"""The parts of an episode on a GPU, what share of the GPU's arithmetic they use, and how long a whole test would take.

As in an evaluation, all of ten refinement steps are recorded. Everything runs in this process, in turns; the host waits
for the device before and after each call.
"""

import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from counting import per_image
from data_rows import write_jpegs
from drawing import PARTS
from measuring import in_turns, ratio, seconds_of
from rows import EPISODES, PRECISIONS, contents, episode, our_model, plain_model
from torch.nn import functional as F

from tcnaps.config.settings import FixedProtocol, Folder
from tcnaps.data import preparation
from tcnaps.data.preparing import ensure_prepared
from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.method.clustering import trajectory
from tcnaps.method.episode import Episode
from tcnaps.method.model import TransductiveCNAPS

STEPS = 10  # a study's usual recorded_steps
PROTOCOL = 13 * 600  # test episodes of the paper's datasets
COUNTED = {"task encoder": "set encoder", "backbone": "backbone"}


def measure_device(
    device: torch.device, size: int, repetitions: int, settings: dict[str, tuple[int, int, int]] = EPISODES
) -> Iterator[dict]:
    """Rows like those of `run.measure`. The last setting should be the largest.

    A network's `share` is its operations per second ÷ those of one large matrix product in the same precision.
    """
    limits = {precision: matrix_limit(device, dtype) for precision, dtype in PRECISIONS.items()}
    operations = {part: per_image(size)[counted]["operations"] for part, counted in COUNTED.items()}
    for precision, limit in limits.items():
        print(f"One large matrix product, {precision}: {limit / 1e12:.1f} · 10¹² operations per second")
    for name, (way, shot, queries) in settings.items():
        task = episode(way, shot, queries, size).to(device)
        calls = {
            (part, precision): call
            for precision in PRECISIONS
            for part, call in parts(our_model(precision).to(device), task).items()
        }
        calls |= {("training step", precision): step(device, task, precision) for precision in PRECISIONS}
        calls["whole", "direct"] = direct(device, task)
        timed = in_turns(calls, repetitions, device)
        for part in (*PARTS, "whole", "training step"):
            measured = {precision: row for (timed_part, precision), row in timed.items() if timed_part == part}
            for precision, row in measured.items():
                if part in operations:
                    achieved = operations[part] * way * (shot + queries) / row["seconds"]
                    row["share"] = achieved / limits[precision]
                elif part == "whole" and precision != "direct":
                    row |= ratio(row["times"], measured["direct"]["times"])
            yield _printed(_row(f"{name}: {part}", size, device, measured))
    loading = loading_row(device, size, repetitions, (way, shot, queries))
    yield _printed(loading)
    for precision in PRECISIONS:
        seconds = timed["whole", precision]["seconds"] + loading["measured"]["loading"]["seconds"]
        minutes = PROTOCOL * seconds / 60
        print(f"The paper's {PROTOCOL} test episodes, {precision}, if all are as large as the last: {minutes:.1f} min")


def parts(model: TransductiveCNAPS, task: Episode) -> dict[str, Callable[[], object]]:
    """A call for each part of an episode, on the result of the part before."""
    images = torch.cat([task.support_images, task.query_images])
    with torch.no_grad():
        film, features = model.adapt(task), model.features(task)
    calls = {
        "task encoder": lambda: model.embed(task),
        "backbone": lambda: model.extract(images, film),
        "clustering": lambda: trajectory(*features, model.head, STEPS),
        "whole": lambda: trajectory(*model.features(task), model.head, STEPS),
    }
    return {part: torch.no_grad()(call) for part, call in calls.items()}


def step(device: torch.device, task: Episode, precision: str) -> Callable[[], object]:
    """The forward and backward pass of one episode of meta-training, through ten refinement steps."""
    model = our_model(precision).to(device).train()

    def call() -> None:
        model.zero_grad()
        F.cross_entropy(model(task, steps=STEPS)[-1], task.query_labels).backward()

    return call


def direct(device: torch.device, task: Episode) -> Callable[[], object]:
    """The labels of the queries by the direct implementation."""
    model, images = plain_model().to(device), contents(task)
    return lambda: model.classify(*images, STEPS, STEPS)


def matrix_limit(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second of one large matrix product, in TF32 where convolutions use that."""
    n = 8192 if device.type == "cuda" else 1024
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    limit = 2 * n**3 / min(seconds_of(lambda: a @ b, device) for _ in range(10))
    torch.backends.cuda.matmul.allow_tf32 = False
    return limit


def loading_row(device: torch.device, size: int, repetitions: int, setting: tuple[int, int, int]) -> dict:
    """Seconds per episode from files to the device."""
    way, shot, queries = setting
    with tempfile.TemporaryDirectory() as place:
        write_jpegs(Path(place) / "images", way, shot + queries, size)
        dataset = Folder(source="folder", domain="in", path=str(Path(place) / "images"))
        source = ensure_prepared(preparation("bench", dataset, size), Path(place) / "prepared").splits["train"]
        protocol = FixedProtocol(way=way, shot=shot, queries_per_class=queries)
        draws = [draw_episode(source, protocol, 0, index) for index in range(10)]

        def load():
            for draw in draws:
                load_episode(source, draw, device)

        row = in_turns({"loading": load}, repetitions, device)["loading"]
    times = [seconds / len(draws) for seconds in row["times"]]
    measured = {"loading": row | {"seconds": statistics.median(times), "times": times}}
    return _row(f"loading {way * (shot + queries)} images", size, device, measured)


def _row(name: str, size: int, device: torch.device, measured: dict) -> dict:
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {"group": "device", "name": name, "size": size, "device": kind, "measured": measured}


def _printed(row: dict) -> dict:
    """Prints the row and returns it."""
    for number, (implementation, measured) in enumerate(row["measured"].items()):
        text = f"{'device':>10} {row['name'] if number == 0 else '':<34} {implementation:<12}"
        text += f"{1e3 * measured['seconds']:>10.2f} ms per episode"
        if measured["bytes"]:
            text += f" {measured['bytes'] / 1e9:>6.2f} GB"
        if "share" in measured:
            text += f"  {100 * measured['share']:.0f}% of a matrix product's operations per second"
        if "ratio" in measured:
            text += f" {measured['ratio']:>7.2f}× ({measured['ratio_low']:.2f}–{measured['ratio_high']:.2f})"
        print(text, flush=True)
    return row
