"""Times the clustering against a direct implementation on the same episodes: `make bench`.

Both run alternately in one process on 512 features, 10 queries a class, minimum 2 and maximum 4 refinement steps,
in float32.
"""

import argparse
import statistics
import time

import direct
import torch

from tcnaps.clustering import cluster

SETTINGS = ((5, 1), (5, 5), (20, 10), (50, 2), (50, 10))


def episode(way: int, shot: int, separation: float, seed: int, d: int = 512, queries: int = 10):
    """Support features, labels and query features of Gaussian classes with a few dominant directions, as features
    have."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.logspace(0.5, -1, d)
    centres = separation * spread * torch.randn(way, d, generator=generator)
    draw = lambda n: torch.cat([c + spread * torch.randn(n, d, generator=generator) for c in centres])  # noqa: E731
    return draw(shot), torch.arange(way).repeat_interleave(shot), draw(queries)


def seconds(function, *arguments) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--separation", type=float, default=1.0, help="of the class centres; smaller is more diffuse")
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, float32, median of {arguments.repetitions}")
    print(f"{'episode':>16} {'direct':>11} {'tcnaps':>11} {'ratio (range)':>22}  same labels and steps")
    for way, shot in SETTINGS:
        data = episode(way, shot, arguments.separation, seed=way + shot)
        ours, theirs, same = [], [], True
        for repetition in range(-1, arguments.repetitions):  # the first is a warm-up
            slow = seconds(direct.cluster, *data, 2, 4)
            fast = statistics.median(seconds(cluster, *data) for _ in range(3))
            if repetition >= 0:
                theirs.append(slow)
                ours.append(fast)
        step, (logits, steps) = cluster(*data), direct.cluster(*data, 2, 4)
        same = steps == step.number and torch.equal(step.labels, logits.argmax(1))
        ratios = [slow / fast for slow, fast in zip(theirs, ours)]
        times = f"{1e3 * statistics.median(theirs):>8.1f} ms {1e3 * statistics.median(ours):>8.2f} ms"
        ratio = f"{statistics.median(ratios):>8.1f}× ({min(ratios):.1f}–{max(ratios):.1f})"
        print(f"{way:>4}-way {shot:>2}-shot {times} {ratio}  {'yes' if same else 'NO'}, {steps} steps")


if __name__ == "__main__":
    main()
