"""What each difference between the paper and its released code costs → matplotlib Axes."""

import pandas as pd

from tcnaps.figures.style import BLACK, GREY, Panels, variant_style


def cost_of_differences(axes: Panels, costs: pd.DataFrame) -> None:
    """Paired change in accuracy when a switch is turned, a panel for each evaluation, a marker for each variant.

    Args:
        costs: of `differences.cost_of_differences`.
    """
    names = [f"{'–' if pd.isna(row) else row}  {label}" for row, label in zip(costs["row"], costs["label"])]
    rows = {name: y for y, name in enumerate(dict.fromkeys(names))}
    trains = costs.assign(y=[rows[name] for name in names]).drop_duplicates("y").set_index("y")["trains"]
    divide = [y - 0.5 for y in trains.index[1:] if trains[y] != trains[y - 1]]
    for ax, (evaluation, own) in zip(axes, costs.assign(y=[rows[n] for n in names]).groupby("evaluation", sort=False)):
        for i, (variant, of_variant) in enumerate(own.groupby("variant", sort=False)):
            colour, marker = variant_style(variant, i)
            y = of_variant["y"] + (0.16 if variant in ("Transductive", "COT") else -0.16)
            ax.errorbar(
                100 * of_variant["difference"],
                y,
                xerr=100 * of_variant["interval"],
                fmt=marker,
                color=colour,
                elinewidth=1,
                label=variant,
            )
        ax.axvline(0, color=BLACK, linewidth=0.8)
        for y in divide:
            ax.axhline(y, color=GREY, linewidth=0.6, linestyle=":")
        ax.set(title=evaluation, xlabel="Paired change in accuracy (points)", ylim=(len(rows) - 0.4, -0.6))
        ax.set_yticks(range(len(rows)), rows)
        ax.label_outer()
    handles = dict(zip(*reversed(axes[0].get_legend_handles_labels())))
    axes[0].figure.legend(handles.values(), handles, loc="outside lower center", ncols=4)
