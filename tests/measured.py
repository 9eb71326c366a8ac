"""A file as `make bench` writes it, with made-up times."""

import json
from pathlib import Path

LIMITS = {"operations_float32": 1e11, "operations_bfloat16": 2e11, "bytes": 1e10, "fresh_bytes": 1e9}
MACHINE = {"processor": "a processor", "threads": 2, "torch": "2.9", "limits": LIMITS}


def one(seconds, ratio=None, n_bytes=None, problem=None):
    row = {"seconds": seconds, "times": [seconds], "bytes": n_bytes, "problem": problem}
    return row if ratio is None else row | {"ratio": ratio, "ratio_low": 0.9 * ratio, "ratio_high": 1.2 * ratio}


def write_measurements(path: Path) -> None:
    rows = []  # group, name, measured
    for episode, factor in (("5-way 5-shot", 1), ("20-way 10-shot", 4)):
        for part, seconds in (("task encoder", 0.2), ("backbone", 0.5), ("clustering", 0.1)):
            fast = {"float32": one(factor * seconds / 2, 2.0), "bfloat16": one(factor * seconds / 4, 4.0)}
            rows.append(("parts", f"{episode}: {part}", fast | {"direct": one(factor * seconds)}))
        rows.append(("test", episode, {"float32": one(0.4, 2.0, 3 * 10**8), "direct": one(0.8, None, 10**9)}))
    lost = {"float32": one(9.0, None, 4 * 10**9), "direct": one(None, problem="out of memory")}
    rows.append(("training", "1000 images", lost))
    counts = {"set encoder": (2 * 10**8, 3 * 10**6), "backbone": (2 * 10**9, 9 * 10**6)}
    per_image = {name: dict(zip(("operations", "bytes"), numbers)) for name, numbers in counts.items()}
    rows = [dict(zip(("group", "name", "measured"), row)) | {"size": 84, "machine": MACHINE} for row in rows]
    content = {"per_image": per_image, "rows": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
