"""The learning curves of the two training phases, drawn on matplotlib Axes."""

import pandas as pd
from matplotlib.ticker import LogFormatter, MaxNLocator, ScalarFormatter

from tcnaps.figures.style import BLACK, PALETTE, Panels


def pretraining(axes: Panels, curve: pd.DataFrame) -> None:
    """The loss, and the training and held-out accuracy, by epoch, in two panels."""
    loss, accuracy = axes
    loss.plot(curve["epoch"], curve["loss"], color=BLACK)
    loss.set(xlabel="Epoch", ylabel="Cross-entropy (nats)")
    for i, (column, label) in enumerate((("train_accuracy", "training"), ("valid_accuracy", "held out"))):
        accuracy.plot(curve["epoch"], 100 * curve[column], color=PALETTE[i], label=label)
    accuracy.set(xlabel="Epoch", ylabel="Accuracy (%)")
    accuracy.legend(loc="lower right")
    for ax in axes:
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def meta_training(axes: Panels, steps: pd.DataFrame, validation: pd.DataFrame) -> None:
    """The loss, the training accuracy, and each dataset's validation accuracy with their mean, in three panels.

    Loss and training accuracy are pale, with their running mean over a twentieth of the training in black.
    """
    loss, train, valid = axes
    for ax, column, factor in ((loss, "loss", 1), (train, "train_accuracy", 100)):
        smooth = steps[column].rolling(max(len(steps) // 20, 1), min_periods=1, center=True).mean()
        ax.plot(steps["episode"], factor * steps[column], color="#C8C8C8", linewidth=0.6)
        ax.plot(steps["episode"], factor * smooth, color=BLACK)
    loss.set(ylabel="Cross-entropy (nats)", title="Training loss", yscale="log")
    loss.yaxis.set_major_formatter(ScalarFormatter())
    loss.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.4)))
    train.set(ylabel="Accuracy (%)", title="Training episodes")
    for i, (name, curve) in enumerate(validation.groupby("dataset", sort=False)):
        colour = PALETTE[i % (len(PALETTE) - 1)]  # black, the last, is the mean's
        look = {"color": colour, "linewidth": 0.8, "marker": ".", "markersize": 3}
        valid.plot(curve["episode"], 100 * curve["accuracy"], label=name, **look)
    mean = 100 * validation.groupby("episode")["accuracy"].mean()
    valid.plot(mean.index, mean, color=BLACK, linewidth=1.8, marker="o", markersize=3, label="mean")
    valid.set(title="Validation", ylabel="Accuracy (%)")
    valid.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    for ax in axes:
        ax.set_xlabel("Episodes")
        ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
