"""What `make bench` measured, as tables."""

import json
from pathlib import Path

import pandas as pd


def load_measurements(path: str | Path) -> pd.DataFrame:
    """One row for each thing measured and each implementation of it.

    Returns:
        group, name, size (of the images, in pixels), implementation, seconds (the median), ratio, ratio_low and
        ratio_high (seconds of what it is compared with ÷ its own; nan for that one), gigabytes (what it added to its
        process's memory at the peak), problem (why there is no time), and of the machine: processor, threads, torch.

    Raises:
        FileNotFoundError: nothing was measured yet.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no {path}. `make bench` makes it; nothing else should run meanwhile.")
    found = []
    for row in json.loads(path.read_text())["rows"]:
        machine = {key: row["machine"][key] for key in ("processor", "threads", "torch")}
        for implementation, measured in row["measured"].items():
            found.append(
                {
                    **{key: row[key] for key in ("group", "name", "size")},
                    "implementation": implementation,
                    **{key: measured.get(key) for key in ("seconds", "ratio", "ratio_low", "ratio_high")},
                    "gigabytes": measured["bytes"] / 1e9 if measured.get("bytes") is not None else None,
                    "problem": measured.get("problem"),
                    **machine,
                }
            )
    numbers = ["seconds", "ratio", "ratio_low", "ratio_high", "gigabytes"]
    return pd.DataFrame(found).astype(dict.fromkeys(numbers, float))


def parts_of_episodes(measurements: pd.DataFrame) -> pd.DataFrame:
    """Seconds of the parts of an episode: episode, part, implementation, seconds, ratio.

    Raises:
        ValueError: they were not measured.
    """
    own = measurements[measurements["group"] == "parts"]
    if own.empty:
        raise ValueError('The parts of an episode were not measured; run `make bench ARGS="--only parts"`.')
    names = own["name"].str.split(": ", expand=True)
    columns = ["episode", "part", "implementation", "seconds", "ratio"]
    return own.assign(episode=names[0], part=names[1])[columns].reset_index(drop=True)


def distance_from_the_limit(path: str | Path, images: dict[str, int]) -> pd.DataFrame:
    """What share of the machine's speed the convolutions reach.

    Args:
        images: the number of images of each episode whose parts were measured.

    Returns:
        episode, part, implementation, operations (of the whole), achieved and limit (operations per second; the
        limit is that of one large convolution in the same precision), share (achieved ÷ limit) and bytes_share (the
        least time for what convolutions read and write ÷ the time taken).
    """
    content = json.loads(Path(path).read_text())
    limits = next(row["machine"]["limits"] for row in content["rows"] if row["group"] == "parts")
    found = []
    for row in parts_of_episodes(load_measurements(path)).itertuples():
        counted = content["per_image"].get({"task encoder": "set encoder"}.get(row.part, row.part))
        if counted is None or row.episode not in images:
            continue
        precision = "bfloat16" if row.implementation == "bfloat16" else "float32"
        operations, limit = counted["operations"] * images[row.episode], limits[f"operations_{precision}"]
        n_bytes = counted["bytes"] * images[row.episode] / (2 if precision == "bfloat16" else 1)
        found.append(
            {
                "episode": row.episode,
                "part": row.part,
                "implementation": row.implementation,
                "operations": operations,
                "achieved": operations / row.seconds,
                "limit": limit,
                "share": operations / row.seconds / limit,
                "bytes_share": n_bytes / limits["bytes"] / row.seconds,
            }
        )
    return pd.DataFrame(found)
