"""Times the library against a direct implementation on the same episodes: `make bench`.

Every implementation runs in its own process, in turns after a warm-up. A ratio is the median of the turns, with the
smallest and the largest. Peak memory is what the calls add to the process. Nothing else should run meanwhile.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import measuring
import torch
from counting import per_image
from data_rows import measure_data
from device_rows import measure_device
from rows import GROUPS

from tcnaps.config.storage import write_text

# Networks with random weights have features of low variance.
warnings.filterwarnings("ignore", message="The features' total variance")

RESULTS = Path(__file__).parents[1] / "results" / "benchmarks.json"


def measure(group: str, size: int, repetitions: int, patience: float) -> Iterator[dict]:
    """Times the rows of a group, one after the other."""
    for row in GROUPS[group](size):
        command = [sys.executable, __file__, "--serve", group, row.name, str(size)]
        commands = {name: [*command, name] for name in row.calls}
        measured = measuring.compare(commands, repetitions, patience, row.apart, row.compare)
        print(measuring.report(group, row.name, measured), flush=True)
        yield {"group": group, "name": row.name, "size": size, "measured": measured}


def serve(group: str, name: str, size: str, implementation: str) -> None:
    row = next(row for row in GROUPS[group](int(size)) if row.name == name)
    last = list(row.calls)[-1]
    measuring.serve(row.calls[implementation], 1 if implementation == last else row.inner)


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        return serve(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__)
    gpu = torch.cuda.is_available()
    groups = [*GROUPS, "data", "device"]
    usual = [group for group in groups if group != "device" or gpu]
    only = {"nargs": "+", "choices": groups, "default": usual, "metavar": "GROUP"}
    parser.add_argument("--only", **only, help=", ".join(groups) + "; by default all, `device` only with a GPU")
    parser.add_argument("--size", type=int, default=84, help="of the images, in pixels")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--patience", type=float, default=90, help="seconds after which a row takes no further turn")
    device = torch.device("cuda" if gpu else "cpu")
    parser.add_argument("--device", type=torch.device, default=device, help="used by the group `device`")
    parser.add_argument("--output", type=Path, default=RESULTS, help="rows of the groups measured now are replaced")
    options = parser.parse_args()
    machine = measuring.machine()
    print(json.dumps(machine, indent=1))
    kept = json.loads(options.output.read_text()) if options.output.exists() else {"rows": []}
    rows = [{**row, "machine": row.get("machine", {})} for row in kept["rows"]]
    per_part = kept.get("per_image") if "parts" not in options.only else None  # of the size that they were measured at
    for group in options.only:
        rows = [row for row in rows if row["group"] != group]
        if group == "data":
            new = measure_data(options.repetitions)
        elif group == "device":
            new = measure_device(options.device, options.size, options.repetitions)
        else:
            new = measure(group, options.size, options.repetitions, options.patience)
        for row in new:
            rows.append({**row, "machine": machine})
            content = {"per_image": per_part or per_image(options.size), "rows": rows}
            write_text(options.output, json.dumps(content, indent=1) + "\n")
    print(f"\n{options.output}")


if __name__ == "__main__":
    main()
