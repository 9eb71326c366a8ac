"""Draws the classes of a recipe into prepared arrays, on as many processes as there are cores.

Workers are plain child processes that run this module. (multiprocessing would import the caller's main script
again in each, which notebooks, interactive sessions and scripts without a main guard don't survive.) A worker
receives its tasks pickled on standard input, draws straight into the memory-mapped arrays and reports each
class by a line on standard output. What is drawn depends on the class alone, so the number of workers changes
nothing.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm

from tcnaps.datasets.miniature.plan import ClassPlan

IMAGES_PER_WORKER = 300  # a worker for fewer costs more to start than it draws in that time


@dataclass(frozen=True)
class _Task:
    plan: ClassPlan
    file: str
    start: int
    image_size: int


def draw(
    plans: Mapping[str, Sequence[ClassPlan]], files: Mapping[str, Path], image_size: int, workers: int | None = None
) -> None:
    """Draws all classes of a dataset.

    Args:
        plans: split -> classes, in the order of the array.
        files: split -> .npy file of uint8 (n, image_size, image_size, 3), n the number of the split's images.
        workers: processes; by default one a core, fewer for small datasets. 1 draws in this process.

    Raises:
        RuntimeError: a worker failed; the message holds what it said.
    """
    tasks = []
    for split, classes in plans.items():
        starts = np.cumsum([0, *(plan.n_images for plan in classes)])
        tasks += [
            _Task(plan, str(files[split]), int(start), image_size) for plan, start in zip(classes, starts, strict=False)
        ]
    images = sum(task.plan.n_images for task in tasks)
    if workers is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = max(1, min(cores, images // IMAGES_PER_WORKER))
    with tqdm(total=images, desc=tasks[0].plan.dataset, unit="image", leave=False, disable=None) as bar:
        if workers == 1:
            _draw_all(tasks, bar.update)
        else:
            with ThreadPoolExecutor(workers) as pool:  # a thread a worker, to listen to it
                shares = [tasks[k::workers] for k in range(workers)]
                for result in [pool.submit(_run_worker, share, bar.update) for share in shares]:
                    result.result()


def _draw_all(tasks: Sequence[_Task], report: Callable[[int], object]) -> None:
    from tcnaps.datasets.miniature import RECIPES  # the recipes import what this module imports

    arrays: dict[str, np.memmap] = {}
    for task in tasks:
        if task.file not in arrays:
            arrays[task.file] = np.lib.format.open_memmap(task.file, mode="r+")
        drawn = RECIPES[task.plan.dataset].render(task.plan, task.image_size)
        arrays[task.file][task.start : task.start + len(drawn)] = drawn
        report(len(drawn))
    for array in arrays.values():
        array.flush()


def _run_worker(tasks: Sequence[_Task], report: Callable[[int], object]) -> None:
    package_parent = str(Path(__file__).resolve().parents[3])
    # One thread of linear algebra a worker: the matrices are small and the workers fill the cores.
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [package_parent, os.environ.get("PYTHONPATH")])),
    }
    command = [sys.executable, "-m", "tcnaps.datasets.miniature.drawing"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as worker:
        with ThreadPoolExecutor(
            1
        ) as listener:  # errors are read meanwhile, so that the worker never waits for a full pipe
            errors = listener.submit(worker.stderr.read)
            try:
                worker.stdin.write(pickle.dumps(list(tasks)))
                worker.stdin.close()
            except BrokenPipeError:
                pass  # it died at once; what it said follows
            for line in worker.stdout:
                report(int(line))
            said = errors.result().decode(errors="replace")
    if worker.returncode:
        raise RuntimeError(
            f"Drawing {tasks[0].plan.dataset} failed in a worker (exit {worker.returncode}):\n{said[-2000:]}"
        )


def main() -> None:
    """A worker: tasks from standard input, a line for each class drawn to standard output."""
    _draw_all(pickle.load(sys.stdin.buffer), lambda count: print(count, flush=True))


if __name__ == "__main__":
    # Run as a script this module is `__main__`; what was pickled names it by its full name.
    from tcnaps.datasets.miniature import drawing

    drawing.main()
