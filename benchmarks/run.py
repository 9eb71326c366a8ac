"""Times the library against a direct implementation on the same episodes: `make bench`.

Both run alternately in one process, after a warm-up; the ratio is the median of the turns, with the smallest and the
largest. Peak memory is what a call adds to a fresh process. Nothing else should run meanwhile.
"""

import argparse
import sys
from pathlib import Path

import measuring
import torch
from data_rows import measure_data
from rows import GROUPS

RESULTS = Path(__file__).parents[1] / "results" / "benchmarks"
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
WITHOUT_PRECISION = ("clustering",)


def measure(group: str, size: int, precision: str, repetitions: int) -> list[dict]:
    measured = []
    for row in GROUPS[group](size, PRECISIONS[precision]):
        found = {"group": group, "name": row.name, "precision": precision, "size": size}
        found |= measuring.alternately(row.ours, row.other, repetitions, row.inner)
        if row.same is not None:
            found["same"] = row.same(row.ours(), row.other())
        if row.memory:
            common = (group, row.name, str(size), precision)
            found["peak"] = measuring.peak_memory(Path(__file__), *common, "ours")
            found["other_peak"] = measuring.peak_memory(Path(__file__), *common, "other")
        print(measuring.printed(found), flush=True)
        measured.append(found)
    return measured


def report_peak(group: str, name: str, size: str, precision: str, whose: str) -> None:
    row = next(row for row in GROUPS[group](int(size), PRECISIONS[precision]) if row.name == name)
    measuring.report_peak(getattr(row, whose))


def main() -> None:
    if sys.argv[1:2] == ["--peak"]:
        return report_peak(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__)
    groups = [*GROUPS, "data"]
    parser.add_argument("--only", nargs="+", choices=groups, default=groups, metavar="GROUP", help=", ".join(groups))
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--size", type=int, default=84, help="of the images, in pixels")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS / "latest.json")
    options = parser.parse_args()
    facts = measuring.machine()
    print(", ".join(f"{name} {value}" for name, value in facts.items() if value is not None))
    rows = []
    for group in options.only:
        if group == "data":
            rows += measure_data(options.repetitions)
            continue
        for precision in options.precision[:1] if group in WITHOUT_PRECISION else options.precision:
            print(f"\n{group}, {precision}: ours, direct, direct ÷ ours")
            rows += measure(group, options.size, precision, options.repetitions)
        measuring.write(rows, options.output)
    measuring.write(rows, options.output)
    print(f"\n{options.output}")


if __name__ == "__main__":
    main()
