"""Kills a pretraining, a meta-training and an evaluation at random moments and compares what they end in, bit for bit.

python tests/killing.py --trials 20
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # before PyTorch: sums in another order are other bits
    os.environ[variable] = "1"
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import pandas as pd  # noqa: E402
from evaluation.conftest import placed  # noqa: E402

from tcnaps.evaluation.evaluate import evaluate  # noqa: E402
from tcnaps.training.meta_training import meta_train  # noqa: E402
from tcnaps.training.pretraining import pretrain  # noqa: E402
from tcnaps.training.watching import OF_STEPS  # noqa: E402

TRAINING = "support_and_query"


def begin(root: Path) -> int:
    """Starts everything, or goes on with it, in a process of its own, whose number is returned."""
    if child := os.fork():
        return child
    try:
        output = os.open(root / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        with placed(root) as study:
            pretrain(study, save_every=1)
            meta_train(study, TRAINING, save_every=1)
            evaluate(study, TRAINING)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def has_ended(child: int, wait: bool = False) -> bool:
    ended, status = os.waitpid(child, 0 if wait else os.WNOHANG)
    if ended and status:
        raise RuntimeError(f"it ended with status {status}; see output.txt")
    return bool(ended)


def kill_after(child: int, seconds: float) -> bool:
    """Whether the process was still running then."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if has_ended(child):
            return False
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def outcome(root: Path) -> dict[str, object]:
    """All that must be the same: every file's bytes, but of what was watched only what does not depend on time."""
    files = sorted(file for file in (root / "results").rglob("*") if file.is_file() and "events." not in file.name)
    found = {str(file.relative_to(root)): file.read_bytes() for file in files}
    for name in [name for name in found if "/watch/" in name]:
        found[name] = pd.read_csv(root / name)[["step", *OF_STEPS]].to_csv()
    return found


def trial(root: Path, generator: random.Random, seconds: float, kills: int) -> list[float]:
    """Kills several times, then lets it come to its end; returns when it was killed."""
    moments = []
    for _ in range(kills):
        moment = generator.uniform(0, 1.5 * seconds / kills)  # all kills together reach every part, the last one too
        if not kill_after(begin(root), moment):
            break
        moments.append(moment)
    else:
        has_ended(begin(root), wait=True)
    return moments


def main() -> int:
    """Returns the exit status: 1 if anything differed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--kills", type=int, default=3, help="in each trial, at most")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args()
    generator, different = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as folder:
        roots = [Path(folder, str(number)) for number in range(options.trials + 1)]
        for root in roots:
            root.mkdir()
        start = time.monotonic()
        has_ended(begin(roots[0]), wait=True)
        seconds, expected = time.monotonic() - start, outcome(roots[0])
        for number, root in enumerate(roots[1:], 1):
            moments, found = trial(root, generator, seconds, options.kills), outcome(root)
            names = [name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)]
            different += bool(names)
            when = ", ".join(f"{moment:.1f}" for moment in moments)
            print(
                f"{number}: killed after {when} of {seconds:.1f} s: {'differs: ' if names else 'the same'}",
                *names,
                flush=True,
            )
    print(f"{options.trials - different} of {options.trials} trials ended in the same {len(expected)} files")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
