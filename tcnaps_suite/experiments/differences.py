"""What each difference between the paper and its released code costs: one switch at a time, paired, on one study.

docs/fidelity.md describes the switches. Differences that need no other weights are measured with the study's own;
the others train anew, from the study's backbone where they can.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd
import torch
from tqdm.auto import tqdm

from tcnaps.config import Study
from tcnaps.config.presets import merged
from tcnaps.data import open_split
from tcnaps.evaluation.evaluate import evaluate_dataset
from tcnaps.evaluation.result_files import needed_trainings
from tcnaps.evaluation.statistics import domain_averages, episode_accuracies, paired_episodes
from tcnaps.evaluation.stopped_rows import variant_predictions
from tcnaps.training.checkpoints import checkpoint_folder, load_model
from tcnaps.training.meta_training import meta_train
from tcnaps.training.pretraining import pretrain

TRAINED = ("nothing", "adaptation", "everything")  # before a switch can be judged, the least first


@dataclass(frozen=True)
class Difference:
    """One switch, from the study's side to the other.

    Attributes:
        row: its number in docs/fidelity.md.
        label: what is changed, for the figure.
        changes: the study's keys and their other values.
        trains: what has to be trained anew before the switch can be judged.
        variants: whose accuracy it can change.
    """

    row: int | None
    label: str
    changes: dict
    trains: Literal["nothing", "adaptation", "everything"] = "nothing"
    variants: tuple[str, ...] = ("Simple", "Transductive")


def differences_of(study: Study) -> list[Difference]:
    """The switches that can change the accuracy of a study under the preset `paper`, and what chance alone changes.

    Not among them: intervals and ranks (rows 10, 16), which change no accuracy, and the reading and resizing of files
    (rows 17, 18), which a study of generated images does not do.
    """
    protocol, recorded = study.meta_training.protocol, study.refinement.recorded_steps
    simple = {"clustering": {"simple_class_covariance_divisor": "n-1"}}
    refined = {"variants": ("Transductive",)}
    adapted = {"trains": "adaptation", **refined}
    every = max(1, study.meta_training.validate_every // 2)
    found = [
        Difference(1, "task covariance: n − 1", {"clustering": {"task_covariance_divisor": "n-1"}}),
        Difference(2, "Simple's class covariances: nₖ − 1", simple, variants=("Simple", "COT")),
        Difference(7, "minimum steps: 0", {"refinement": {"minimum_steps": 0}}, **refined),
        Difference(11, f"maximum steps: {recorded}", {"refinement": {"maximum_steps": recorded}}, **refined),
        Difference(None, "arithmetic: plain", {"arithmetic": "plain"}),
        # No difference between paper and code: the scale chosen without labels, in testing alone and in training too.
        Difference(None, "scale: auto", {"clustering": {"scale": "auto"}}, **refined),
        Difference(None, "scale: auto, also in training", {"clustering": {"scale": "auto"}}, **adapted),
        Difference(5, "LSTM layers: 2", {"task_encoder": {"lstm_layers": 2}}, **adapted),
        Difference(6, "set encoder: running statistics", {"task_encoder": {"statistics": "running"}}, **adapted),
        Difference(8, "loss: sum over queries", {"meta_training": {"query_loss": "sum"}}, **adapted),
        Difference(8, "penalty on FiLM: 0.001", {"meta_training": {"film_penalty": 1e-3}}, **adapted),
        Difference(9, "best by half of them", {"meta_training": {"keep_best_by": "half of the datasets"}}, **adapted),
        Difference(9, "validation with refinement", {"meta_training": {"validate_refined": True}}, **adapted),
        Difference(12, "validation twice as often", {"meta_training": {"validate_every": every}}, **adapted),
        Difference(13, "pixels in [0, 1]", {"pixel_range": [0, 1]}, "everything", ("Transductive",)),
    ]
    # No switch at all: how far apart two trainings are, which the intervals, of episodes alone, don't know.
    seeds = [study.training_seed + number for number in (1, 2)]
    found += [Difference(None, f"no switch, seed {seed}", {"replicates": [seed]}, **adapted) for seed in seeds]
    if protocol.kind == "variable":
        way = max(protocol.minimum_way, protocol.maximum_way * 4 // 5)  # 50 and 500 become 40 and 400
        fewer = {"maximum_way": way, "maximum_support_size": max(way, protocol.maximum_support_size * 4 // 5)}
        found += [
            Difference(3, "training shots: uniform", {"meta_training": {"protocol": {"shots": "uniform"}}}, **adapted),
            Difference(4, "training episodes: four fifths", {"meta_training": {"protocol": fewer}}, **adapted),
        ]
    return sorted(found, key=lambda d: (TRAINED.index(d.trains), d.row is None, d.row or 0))


def switched(study: Study, changes: dict) -> Study:
    """The study with some of its keys changed, checked anew."""
    return Study.model_validate(merged(study.model_dump(mode="json"), changes), strict=False)


def cost_of_differences(
    study: Study,
    differences: Sequence[Difference],
    evaluations: Sequence[str],
    device: torch.device | str = "cpu",
    workers: int = 0,
    episodes: int | None = None,
) -> pd.DataFrame:
    """The change in accuracy, on the same episodes, when a switch is turned to its other side.

    Weights trained on the way are kept in results/<study>/differences and found there by a later call.

    Args:
        workers: processes that read images ahead; see `tcnaps.episodes.loading`. They change nothing else.
        episodes: of the meta-trainings that a switch needs, and of one with no switch turned, which they are compared
            with. Default: the study's own number, and its own weights to compare with.

    Returns:
        One row per difference, evaluation and variant: row, label, trains, evaluation, variant, difference (switched
        minus not switched, in [−1, 1], mean over datasets), interval (its 95% half-width) and n_datasets.
    """
    variants = list(dict.fromkeys(name for difference in differences for name in difference.variants))
    rows: dict[str, pd.DataFrame] = {}  # what needs no other logits is computed from the same rows

    def accuracies_of(other: Study, names: Sequence[str]) -> pd.DataFrame:
        found = []
        for training in needed_trainings(names):
            key = f"{training} {other.model_dump_json(exclude={'refinement', 'meta_training', 'pretraining'})}"
            if key not in rows:
                rows[key] = _rows(study, other, training, evaluations, device, workers)
            found.append(rows[key])
        table = pd.concat(found, ignore_index=True)
        return episode_accuracies(variant_predictions(table, names, *other.refinement.limits))

    plain = short = accuracies_of(study, variants)
    shorter = study
    if episodes is not None and (trained := [d for d in differences if d.trains != "nothing"]):
        shorter = switched(study, {"meta_training": {"episodes": episodes}})
        names = tuple(dict.fromkeys(name for d in trained for name in d.variants))
        none = Difference(None, "none", {}, "adaptation", names)
        short = accuracies_of(_trained(shorter, none, device, workers), names)
    frames = []
    for difference in (bar := tqdm(differences, desc="differences", unit="switch")):
        bar.set_postfix_str(difference.label, refresh=False)
        own, compared = (study, plain) if difference.trains == "nothing" else (shorter, short)
        accuracies = accuracies_of(_trained(own, difference, device, workers), difference.variants)
        for variant in difference.variants:
            a, b = (frame[frame["variant"] == variant] for frame in (accuracies, compared))
            averages = domain_averages(paired_episodes(a, b), ["evaluation"], "difference")
            kept = averages[averages["domain"] == "all"]
            facts = {"row": difference.row, "label": difference.label, "trains": difference.trains, "variant": variant}
            frames.append(kept.drop(columns="domain").assign(**facts))
    columns = ["row", "label", "trains", "evaluation", "variant", "difference", "interval", "n_datasets"]
    return pd.concat(frames, ignore_index=True)[columns].astype({"row": "Int64"})


def _trained(study: Study, difference: Difference, device: torch.device | str, workers: int) -> Study:
    """The switched study with its weights in place; it bears the study's own name where it uses its weights."""
    other = switched(study, difference.changes)
    if difference.trains == "nothing":
        return other
    slug = "".join(c if c.isalnum() else "-" for c in difference.label.lower())
    other = other.model_copy(update={"name": f"{study.name}/differences/{slug}"})
    if difference.trains == "everything":
        pretrain(other, device, workers=workers)
    else:
        checkpoint_folder(other).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(*(checkpoint_folder(s) / "backbone.safetensors" for s in (study, other)))
    for training in needed_trainings(difference.variants):
        meta_train(other, training, device, workers=workers)
    return other


def _rows(study, other, training, evaluations, device, workers) -> pd.DataFrame:
    """Rows of one training of the switched study, on the study's own episodes."""
    model = load_model(other, training, device)
    frames = []
    for name in evaluations:
        for dataset in study.evaluations[name].datasets:
            source = open_split(study, dataset, "test")
            frames.append(evaluate_dataset(model, source, other, training, name, device, workers))
    return pd.concat(frames, ignore_index=True)
