"""What `make bench` measured, as tables."""

import json
from pathlib import Path

import pandas as pd

NUMBERS = ["seconds", "ratio", "ratio_low", "ratio_high", "bytes"]


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
    found = pd.DataFrame(
        {key: row[key] for key in ("group", "name", "size")}
        | {"implementation": implementation}
        | {key: measured.get(key) for key in (*NUMBERS, "problem")}
        | {key: row["machine"][key] for key in ("processor", "threads", "torch")}
        for row in json.loads(path.read_text())["rows"]
        for implementation, measured in row["measured"].items()
    ).astype(dict.fromkeys(NUMBERS, float))
    return found.assign(bytes=found["bytes"] / 1e9).rename(columns={"bytes": "gigabytes"})


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
    counted = pd.DataFrame(content["per_image"]).T.rename({"set encoder": "task encoder"})
    parts = parts_of_episodes(load_measurements(path)).drop(columns="ratio")
    parts = parts[parts["part"].isin(counted.index) & parts["episode"].isin(images)]
    half = parts["implementation"] == "bfloat16"
    n_images, per_image = parts["episode"].map(images), counted.loc[parts["part"]].set_index(parts.index)
    operations, n_bytes = per_image["operations"] * n_images, per_image["bytes"] * n_images / (1 + half)
    achieved = operations / parts["seconds"]
    limit = half.map({True: limits["operations_bfloat16"], False: limits["operations_float32"]})
    share = {"share": achieved / limit, "bytes_share": n_bytes / limits["bytes"] / parts["seconds"]}
    found = parts.drop(columns="seconds").assign(operations=operations, achieved=achieved, limit=limit, **share)
    return found.reset_index(drop=True)
