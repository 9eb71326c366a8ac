"""A file as `make bench` writes it, with made-up times."""

import json
from pathlib import Path

MACHINE = {
    "processor": "a processor",
    "threads": 2,
    "torch": "2.9",
    "limits": {"operations_float32": 1e11, "operations_bfloat16": 2e11, "bytes": 1e10, "fresh_bytes": 1e9},
}


def one(seconds, ratio=None, n_bytes=None, problem=None):
    found = {"seconds": seconds, "times": [seconds], "bytes": n_bytes, "problem": problem}
    return found if ratio is None else found | {"ratio": ratio, "ratio_low": 0.9 * ratio, "ratio_high": 1.2 * ratio}


def write_measurements(path: Path) -> None:
    rows = []
    for episode, factor in (("5-way 5-shot", 1), ("20-way 10-shot", 4)):
        for part, seconds in (("task encoder", 0.2), ("backbone", 0.5), ("clustering", 0.1)):
            rows.append(
                (
                    "parts",
                    f"{episode}: {part}",
                    {
                        "float32": one(factor * seconds / 2, 2.0),
                        "bfloat16": one(factor * seconds / 4, 4.0),
                        "direct": one(factor * seconds),
                    },
                )
            )
        rows.append(("test", episode, {"float32": one(0.4, 2.0, 3 * 10**8), "direct": one(0.8, None, 10**9)}))
    rows.append(
        (
            "training",
            "1000 images",
            {"float32": one(9.0, None, 4 * 10**9), "direct": one(None, problem="out of memory")},
        )
    )
    content = {
        "per_image": {
            "set encoder": {"operations": 2 * 10**8, "bytes": 3 * 10**6},
            "backbone": {"operations": 2 * 10**9, "bytes": 9 * 10**6},
        },
        "rows": [
            {"group": group, "name": name, "size": 84, "measured": measured, "machine": MACHINE}
            for group, name, measured in rows
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
