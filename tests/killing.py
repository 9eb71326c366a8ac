"""Kills a pretraining, a meta-training and an evaluation at random moments and compares what they end in, in bits."""

import argparse
import contextlib
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # before PyTorch: sums in another order are other bits
    os.environ[variable] = "1"
REPOSITORY = Path(__file__).parents[1]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

import psutil  # noqa: E402
import torch._dynamo  # noqa: E402, F401 - optimisers import it: here once, before any process is forked
import yaml  # noqa: E402
from blob_project import picture_study, write_pictures  # noqa: E402

from tcnaps.evaluation.evaluate import evaluate  # noqa: E402
from tcnaps.training.meta_training import meta_train  # noqa: E402
from tcnaps.training.pretraining import pretrain  # noqa: E402

TRAINING = "support_and_query"
BATCH = [sys.executable, "-m", "tcnaps_suite.workflow.batch", "study", "--cores", "2"]
PATIENCE = 1800.0  # seconds for a run to end once one of its processes was killed; other jobs of a batch go on


def write_project(root: Path) -> None:
    root.mkdir()
    write_pictures(root)
    study = picture_study().model_dump(mode="json", exclude_unset=True)
    (root / "study.yaml").write_text(yaml.safe_dump(study))
    shutil.copy(REPOSITORY / "Snakefile", root)
    shutil.copytree(REPOSITORY / "notebooks", root / "notebooks")


def begin(root: Path, processes: int, batch: bool) -> psutil.Process:
    """Starts everything, or goes on with it, in a process of its own."""
    if child := os.fork():
        return psutil.Process(child)
    try:
        output = os.open(root / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(root)
        if batch:
            targets = ["--processes", str(processes), "study.yaml", "--", f"evaluate_{TRAINING}", "data"]
            os.execve(sys.executable, [*BATCH, *targets], os.environ | {"PYTHONPATH": str(REPOSITORY)})
        study = picture_study()
        pretrain(study, save_every=1, processes=processes)
        meta_train(study, TRAINING, save_every=1, processes=processes)
        evaluate(study, TRAINING, processes=processes)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def to_its_end(run: psutil.Process, root: Path) -> None:
    if status := run.wait():
        raise RuntimeError(f"it ended with status {status}:\n{(root / 'output.txt').read_text()}")


def kill_after(run: psutil.Process, seconds: float, generator: random.Random) -> str | None:
    """Kills one of the run's processes and waits until the first has ended; says which, None if it had ended before."""
    with contextlib.suppress(psutil.TimeoutExpired):
        run.wait(seconds)
        return None
    victim = generator.choice([run, *sorted(run.children(recursive=True), key=lambda process: process.pid)])
    name = "one that was just ending"
    with contextlib.suppress(psutil.NoSuchProcess):
        name = "first" if victim == run else " ".join(victim.cmdline()[1:4])[:40]
        victim.kill()
    run.wait(PATIENCE)
    return name


def outcome(root: Path) -> dict[str, object]:
    """All that must be the same: every file's bytes, but for what depends on time."""
    contents = {}
    for file in sorted([*root.glob("results/**/[!.]*"), *root.glob("figures/**/[!.]*")]):
        name = file.relative_to(root)
        if not file.is_file() or "events." in file.name or {"notebooks", ".lock", "times"} & set(name.parts):
            continue
        contents[str(name)] = file.read_bytes()
    return contents


def trial(root: Path, generator: random.Random, seconds: float, kills: int, **how: object) -> list[str]:
    """Kills several times, then lets it come to its end; returns when what was killed."""
    killed = []
    for _ in range(kills):
        moment = generator.uniform(0, 1.5 * seconds / kills)  # all kills together reach every part, the last one too
        victim = kill_after(begin(root, **how), moment, generator)
        if victim is None:
            break
        killed.append(f"{moment:.1f} s ({victim})")
    to_its_end(begin(root, **how), root)
    return killed


def main() -> int:
    """Returns the exit status: 1 if anything differed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--kills", type=int, default=3, help="in each trial, at most")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--processes", type=int, default=1, help="that share the work")
    parser.add_argument("--batch", action="store_true", help="through notebooks and Snakemake")
    options = parser.parse_args()
    how = {"processes": options.processes, "batch": options.batch}
    generator, different = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as folder:
        roots = [Path(folder, str(number)) for number in range(options.trials + 1)]
        for root in roots:
            write_project(root)
        start = time.monotonic()
        to_its_end(begin(roots[0], **how), roots[0])
        seconds, expected = time.monotonic() - start, outcome(roots[0])
        for number, root in enumerate(roots[1:], 1):
            killed, after = trial(root, generator, seconds, options.kills, **how), outcome(root)
            names = [name for name in after.keys() | expected.keys() if after.get(name) != expected.get(name)]
            different += bool(names)
            when = f"killed after {', '.join(killed)} of {seconds:.1f} s"
            print(f"{number}: {when}: {'differs: ' if names else 'the same'}", *names, flush=True)
    print(f"{options.trials - different} of {options.trials} trials ended in the same {len(expected)} files")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
