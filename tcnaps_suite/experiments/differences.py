"""What each difference between the paper and its released code costs: one switch at a time, paired, on one study.

docs/fidelity.md describes the switches. Some need new weights, trained on the study's own backbone where possible.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd
import torch
from tqdm.auto import tqdm

from tcnaps.config import Study
from tcnaps.config.study import merged
from tcnaps.data import open_split
from tcnaps.evaluation.evaluate import evaluate_dataset
from tcnaps.evaluation.result_files import needed_trainings
from tcnaps.evaluation.statistics import domain_averages, episode_accuracies, overall, paired_episodes
from tcnaps.evaluation.stopped_rows import variant_predictions
from tcnaps.figures import style
from tcnaps.training.checkpoints import checkpoint_folder, load_model
from tcnaps.training.meta_training import meta_train
from tcnaps.training.pretraining import pretrain

TRAINED = ("nothing", "adaptation", "everything")  # what a switch needs trained anew, least first


@dataclass(frozen=True)
class Difference:
    """One switch, turned from the study's setting to the other; `row` is its number in docs/fidelity.md.

    `trains` says what has to be trained anew, `variants` whose accuracy it can change.
    """

    row: int | None
    label: str
    changes: dict
    trains: Literal["nothing", "adaptation", "everything"] = "nothing"
    variants: tuple[str, ...] = ("Simple", "Transductive")


def differences_of(study: Study) -> list[Difference]:
    """The switches that can change the accuracy of a study under the preset `paper`, and what chance alone changes.

    Left out are intervals and ranks (rows 10, 16), which change no accuracy, and reading and resizing (rows 17, 18).
    """
    protocol, recorded = study.meta_training.protocol, study.refinement.recorded_steps
    simple = {"clustering": {"simple_class_covariance_divisor": "n-1"}}
    refined = {"variants": ("Transductive",)}
    adapted = {"trains": "adaptation", **refined}
    every = max(1, study.meta_training.validate_every // 2)
    switches = [
        Difference(1, "task covariance: n − 1", {"clustering": {"task_covariance_divisor": "n-1"}}),
        Difference(2, "Simple's class covariances: nₖ − 1", simple, variants=("Simple", "COT")),
        Difference(7, "minimum steps: 0", {"refinement": {"minimum_steps": 0}}, **refined),
        Difference(11, f"maximum steps: {recorded}", {"refinement": {"maximum_steps": recorded}}, **refined),
        Difference(None, "arithmetic: plain", {"arithmetic": "plain"}),
        # Not a difference between paper and code: the scale chosen without labels, at test only, or in training too.
        Difference(None, "scale: auto", {"clustering": {"scale": "auto"}}, **refined),
        Difference(None, "scale: auto, also in training", {"clustering": {"scale": "auto"}}, **adapted),
        Difference(5, "LSTM layers: 2", {"task_encoder": {"lstm_layers": 2}}, **adapted),
        Difference(8, "loss: sum over queries", {"meta_training": {"query_loss": "sum"}}, **adapted),
        Difference(8, "penalty on FiLM: 0.001", {"meta_training": {"film_penalty": 1e-3}}, **adapted),
        Difference(9, "best by half of them", {"meta_training": {"keep_best_by": "half of the datasets"}}, **adapted),
        Difference(9, "validation with refinement", {"meta_training": {"validate_refined": True}}, **adapted),
        Difference(12, "validation twice as often", {"meta_training": {"validate_every": every}}, **adapted),
        Difference(13, "pixels in [0, 1]", {"pixel_range": [0, 1]}, "everything", ("Transductive",)),
    ]
    # No switch at all: how far apart two trainings are. The intervals cover episodes alone and can't show it.
    seeds = [study.training_seed + number for number in (1, 2)]
    switches += [Difference(None, f"no switch, seed {seed}", {"replicates": [seed]}, **adapted) for seed in seeds]
    if protocol.kind == "variable":
        way = max(protocol.minimum_way, protocol.maximum_way * 4 // 5)  # 50 and 500 become 40 and 400
        fewer = {"maximum_way": way, "maximum_support_size": max(way, protocol.maximum_support_size * 4 // 5)}
        same = {"validation_protocol": (study.meta_training.validation_protocol or protocol).model_dump(mode="json")}
        uniform, fewer = ({"meta_training": same | {"protocol": change}} for change in ({"shots": "uniform"}, fewer))
        switches.append(Difference(3, "training shots: uniform", uniform, **adapted))
        switches.append(Difference(4, "training episodes: four fifths", fewer, **adapted))
    return sorted(switches, key=lambda d: (TRAINED.index(d.trains), d.row is None, d.row or 0))


def switched(study: Study, changes: dict) -> Study:
    return Study.model_validate(merged(study.model_dump(mode="json"), changes), strict=False)


def cost_of_differences(
    study: Study,
    differences: Sequence[Difference],
    evaluations: Sequence[str],
    device: torch.device | str = "cpu",
    episodes: int | None = None,
) -> pd.DataFrame:
    """The change in accuracy, on the same episodes, when a switch is turned to its other side.

    New weights are kept in results/<study>/differences, where a later call finds them. If `episodes` is given, each
    meta-training has that many, and is compared with one of the same length and no switch turned. There is one row per
    difference, evaluation, variant and group of `overall`, with the mean difference over datasets, in [−1, 1].
    """
    recorded: dict[str, pd.DataFrame] = {}  # studies with the same logits share rows

    def accuracies_of(other: Study, variants: Sequence[str]) -> pd.DataFrame:
        frames = []
        for training in needed_trainings(variants):
            key = f"{training} {other.model_dump_json(exclude={'refinement', 'meta_training', 'pretraining'})}"
            if key not in recorded:
                recorded[key] = _evaluated(study, other, training, evaluations, device)
            frames.append(recorded[key])
        rows = pd.concat(frames, ignore_index=True)
        return episode_accuracies(variant_predictions(rows, variants, *other.refinement.limits))

    base = short_base = accuracies_of(study, _variants(differences))
    retrained = [difference for difference in differences if difference.trains != "nothing"]
    short_study = study
    if episodes is not None and retrained:
        short_study = switched(study, {"meta_training": {"episodes": episodes}})
        no_switch = Difference(None, "none", {}, "adaptation", _variants(retrained))
        short_base = accuracies_of(_trained(short_study, no_switch, device), no_switch.variants)
    frames = []
    for difference in (bar := tqdm(differences, desc="differences", unit="switch")):
        bar.set_postfix_str(difference.label, refresh=False)
        before, start = (base, study) if difference.trains == "nothing" else (short_base, short_study)
        after = accuracies_of(_trained(start, difference, device), difference.variants)
        for variant in difference.variants:
            pairs = paired_episodes(*(frame[frame["variant"] == variant] for frame in (after, before)))
            pairs["images"] = [study.datasets[name].images for name in pairs["dataset"]]
            averages = overall(domain_averages(pairs, ["evaluation"], "difference"))
            facts = {"row": difference.row, "label": difference.label, "trains": difference.trains, "variant": variant}
            frames.append(averages.assign(**facts))
    columns = ["row", "label", "trains", "evaluation", "domain", "variant", "difference", "interval", "n_datasets"]
    return pd.concat(frames, ignore_index=True)[columns].astype({"row": "Int64"})


def _variants(differences: Sequence[Difference]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for difference in differences for name in difference.variants))


def _evaluated(
    study: Study, other: Study, training: str, evaluations: Sequence[str], device: torch.device | str
) -> pd.DataFrame:
    """The rows of a switched study, whose weights are in place, on the study's own episodes."""
    model = load_model(other, training, device)
    places = [(name, open_split(study, d, "test")) for name in evaluations for d in study.evaluations[name].datasets]
    frames = [evaluate_dataset(model, source, other, name) for name, source in places]
    return pd.concat(frames, ignore_index=True)


def _trained(study: Study, difference: Difference, device: torch.device | str) -> Study:
    """The switched study with its weights in place. It keeps the study's name where it uses the study's weights."""
    other = switched(study, difference.changes)
    if difference.trains == "nothing":
        return other
    slug = "".join(c if c.isalnum() else "-" for c in difference.label.lower())
    other = other.model_copy(update={"name": f"{study.name}/differences/{slug}"})
    if difference.trains == "everything":
        pretrain(other, device)
    else:
        checkpoint_folder(other).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(*(checkpoint_folder(s) / "backbone.safetensors" for s in (study, other)))
    for training in needed_trainings(difference.variants):
        meta_train(other, training, device)
    return other


def cost_panels(axes: style.Panels, costs: pd.DataFrame) -> None:
    """The paired change in accuracy when a switch is turned: a panel per evaluation and group, a marker per variant."""
    numbers = ["–" if pd.isna(row) else str(row) for row in costs["row"]]
    costs = costs.assign(name=[f"{number}  {label}" for number, label in zip(numbers, costs["label"])])
    names = list(costs["name"].unique())
    trains = costs.drop_duplicates("name")["trains"].to_list()
    panels = list(costs.groupby(["evaluation", "domain"], sort=False))
    for ax, ((evaluation, domain), panel) in zip(axes, panels, strict=True):
        for i, (variant, cells) in enumerate(panel.groupby("variant", sort=False)):
            y = cells["name"].map(names.index) + (0.16 if variant in ("Transductive", "COT") else -0.16)
            bars = {"xerr": 100 * cells["interval"], "label": variant}
            style.dots(ax, 100 * cells["difference"], y, style.variant_style(variant, i), **bars)
        style.zero_line(ax, "y")
        for y in range(1, len(names)):
            if trains[y] != trains[y - 1]:
                ax.axhline(y - 0.5, color=style.GREY, linewidth=0.6, linestyle=":")
        title = style.of_group(style.in_words(evaluation), domain, "\n")
        ax.set(title=title, xlabel="Change (points)", ylim=(len(names) - 0.4, -0.6))
        ax.set_yticks(range(len(names)), names)
        ax.label_outer()
    style.legend_below(axes)
