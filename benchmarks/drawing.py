"""What `make bench` measured, as tables and figures:

    python benchmarks/drawing.py [results/reference/benchmarks.json] [--figures figures/benchmarks]

It measures nothing itself.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tcnaps.config.fingerprint import code_version
from tcnaps.config.storage import file_digest
from tcnaps.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILLION, Panels, dots, figure, legend_below

HOME = Path(__file__).parents[1]

NUMBERS = ["seconds", "ratio", "ratio_low", "ratio_high", "bytes"]
# The parts of the paper's Figure 2, in their order: colour and hatch.
PARTS = {"task encoder": (ORANGE, "///"), "backbone": (BLUE, ""), "clustering": (VERMILLION, "...")}
IMPLEMENTATIONS = ["direct", "float32", "bfloat16"]
IMAGES = {"5-way 5-shot": 75, "20-way 10-shot": 400}  # of the episodes whose parts are measured
STYLES = {"float32": (BLUE, "o"), "bfloat16": (GREEN, "s")}


def load_measurements(path: str | Path) -> pd.DataFrame:
    """One row for each thing measured and each implementation of it.

    Its columns are group, name, size (of the images, in pixels), implementation, seconds (the median), ratio, ratio_low
    and ratio_high (seconds of the implementation compared with ÷ its own; nan for that one), gigabytes (added to the
    process's memory at the peak), problem (why there is no time), and the machine's processor, threads and torch.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no {path}. `make bench` makes it; nothing else should run meanwhile.")
    rows = [
        {key: row[key] for key in ("group", "name", "size")}
        | {"implementation": implementation}
        | {key: measured.get(key) for key in (*NUMBERS, "problem")}
        | {key: row["machine"][key] for key in ("processor", "threads", "torch")}
        for row in json.loads(path.read_text())["rows"]
        for implementation, measured in row["measured"].items()
    ]
    measurements = pd.DataFrame(rows).astype(dict.fromkeys(NUMBERS, float))
    return measurements.assign(bytes=measurements["bytes"] / 1e9).rename(columns={"bytes": "gigabytes"})


def parts_of_episodes(measurements: pd.DataFrame) -> pd.DataFrame:
    """The seconds of an episode's parts: episode, part, implementation, seconds, ratio; a ValueError without any."""
    parts = measurements[measurements["group"] == "parts"]
    if parts.empty:
        raise ValueError('The parts of an episode were not measured; run `make bench ARGS="--only parts"`.')
    names = parts["name"].str.split(": ", expand=True)
    columns = ["episode", "part", "implementation", "seconds", "ratio"]
    return parts.assign(episode=names[0], part=names[1])[columns].reset_index(drop=True)


def distance_from_the_limit(path: str | Path) -> pd.DataFrame:
    """What share of the machine's speed the convolutions reach, in the episodes of `IMAGES`.

    A multiplication and an addition are two operations; achieved and limit, that of one large convolution in the same
    precision, are operations per second. share is achieved ÷ limit, and bytes_share the least time for what
    convolutions read and write ÷ the time taken.
    """
    content = json.loads(Path(path).read_text())
    limits = next(row["machine"]["limits"] for row in content["rows"] if row["group"] == "parts")
    per_image = pd.DataFrame(content["per_image"]).T.rename({"set encoder": "task encoder"})
    parts = parts_of_episodes(load_measurements(path)).drop(columns="ratio")
    parts = parts[parts["part"].isin(per_image.index) & parts["episode"].isin(IMAGES)]
    counts = per_image.loc[parts["part"]].set_index(parts.index).mul(parts["episode"].map(IMAGES), axis=0)
    is_half = parts["implementation"] == "bfloat16"
    achieved = counts["operations"] / parts["seconds"]
    limit = is_half.map({True: limits["operations_bfloat16"], False: limits["operations_float32"]})
    bytes_share = counts["bytes"] / (1 + is_half) / limits["bytes"] / parts["seconds"]
    table = parts.drop(columns="seconds").assign(operations=counts["operations"], achieved=achieved, limit=limit)
    return table.assign(share=achieved / limit, bytes_share=bytes_share).reset_index(drop=True)


def time_of_episodes(axes: Panels, parts: pd.DataFrame) -> None:
    """Where the time of an episode goes, from `parts_of_episodes`: a panel per episode, a bar per implementation."""
    for ax, (episode, measured) in zip(axes, parts.groupby("episode", sort=False), strict=True):
        seconds = measured.pivot(index="implementation", columns="part", values="seconds")[list(PARTS)]
        seconds = seconds.loc[sorted(seconds.index, key=IMPLEMENTATIONS.index)]
        left, y = np.zeros(len(seconds)), np.arange(len(seconds))
        for part, (colour, hatch) in PARTS.items():
            look = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0, "height": 0.62}
            ax.barh(y, seconds[part], left=left, label=part, **look)
            left += seconds[part].to_numpy()
        for row, total in zip(y, left, strict=True):
            ax.text(total + 0.012 * left.max(), row, f"{total:.2f} s", va="center", fontsize=7)
        ax.set(title=episode, xlabel="Seconds per episode", xlim=(0, 1.16 * left.max()))
        _name_rows(ax, seconds.index)
    legend_below(axes, len(PARTS))


def ratios(ax: Axes, measurements: pd.DataFrame, groups: Sequence[str]) -> None:
    """How many times as fast as the direct implementation: medians of the runs, with the smallest and the largest."""
    compared = measurements[measurements["group"].isin(groups) & measurements["ratio"].notna()]
    compared = compared.assign(name=compared["group"] + ": " + compared["name"])
    names = list(compared["name"].unique())
    for number, (implementation, rows) in enumerate(compared.groupby("implementation", sort=False)):
        y = np.array([names.index(name) for name in rows["name"]]) + 0.16 * (2 * number - 1)
        spread = [rows["ratio"] - rows["ratio_low"], rows["ratio_high"] - rows["ratio"]]
        dots(ax, rows["ratio"], y, STYLES.get(implementation, (GREY, "D")), xerr=spread, label=implementation)
    ax.axvline(1, color=BLACK, linewidth=0.8)
    ax.set(xlabel="Times as fast as the direct implementation", ylim=(len(names) - 0.4, -0.6))
    ax.set_xlim(left=0)
    ax.set_yticks(range(len(names)), names)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)


def memory(ax: Axes, measurements: pd.DataFrame, groups: Sequence[str]) -> None:
    """The memory that the calls add to a process at the peak, one bar per implementation."""
    rows = measurements[measurements["group"].isin(groups)]
    rows = rows.assign(name=rows["group"] + ": " + rows["name"])
    gigabytes, problems = (
        rows.pivot(index="name", columns="implementation", values=column).loc[rows["name"].unique()]
        for column in ("gigabytes", "problem")
    )
    largest = gigabytes.max().max()
    implementations = [name for name in IMPLEMENTATIONS if name in gigabytes]
    for number, name in enumerate(implementations):
        y = np.arange(len(gigabytes)) + 0.26 * (number - (len(implementations) - 1) / 2)
        widths = gigabytes[name].fillna(0)
        ax.barh(y, widths, height=0.22, color=STYLES.get(name, (GREY, ""))[0], label=name)
        for row, width, value, problem in zip(y, widths, gigabytes[name], problems[name]):
            text = f"{value:.2f}" if np.isfinite(value) else problem or "not measured"
            ax.text(width + 0.01 * largest, row, text, va="center", fontsize=6)
    ax.set(xlabel="Peak memory (GB)", xlim=(0, 1.15 * largest))
    _name_rows(ax, gigabytes.index)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)


def _name_rows(ax: Axes, names: pd.Index) -> None:
    """Names the bars from the top down."""
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)


def main(arguments: list[str] | None = None) -> None:
    """Draws two figures, and prints the shares of an episode's parts and their distance from the machine's limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measurements", nargs="?", default=HOME / "results" / "reference" / "benchmarks.json")
    parser.add_argument("--figures", default=HOME / "figures" / "benchmarks", type=Path, help="folder of the figures")
    options = parser.parse_args(arguments)
    path, folder = options.measurements, options.figures
    try:
        measured = load_measurements(path)
    except (OSError, ValueError, LookupError, TypeError) as error:
        parser.error(f"{path} can't be drawn: {error}")
    parts = parts_of_episodes(measured)
    origin = {"Study": "benchmarks", "Digest": file_digest(path)[:16], "Code": code_version(), "Seed": "none"}
    columns = parts["episode"].nunique()
    with figure(folder / "time-of-an-episode", origin, columns=columns, height=1.9) as (_, axes):
        time_of_episodes(axes, parts)
    groups = [group for group in ("test", "training") if group in set(measured["group"])]
    with figure(folder / "ratios-and-memory", origin, columns=2, height=3.4) as (_, (left, right)):
        ratios(left, measured, groups)
        memory(right, measured, groups)
    seconds = parts.pivot(index=["episode", "implementation"], columns="part", values="seconds")[list(PARTS)]
    shares = seconds.div(seconds.sum(axis=1), axis=0)
    print("Share of an episode's time:", shares.round(2).to_string(), sep="\n")
    print("Convolutions:", distance_from_the_limit(path).round(3).to_string(index=False), sep="\n")
    print(f"Figures: {folder}/")


if __name__ == "__main__":
    main()
