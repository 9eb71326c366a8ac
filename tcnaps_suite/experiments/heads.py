"""Other heads beside the paper's on the same episodes: other scales at test, and meta-learned numbers."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from tcnaps.config import Study
from tcnaps.data import open_split
from tcnaps.evaluation.result_files import load_rows, needed_trainings
from tcnaps.evaluation.statistics import episode_accuracies
from tcnaps.evaluation.stopped_rows import variant_predictions
from tcnaps.method.variants import ALL_TRAININGS, ALL_VARIANTS
from tcnaps.training.checkpoints import load_model
from tcnaps_suite.experiments.comparison import compare_classifiers, difference_from, draws, episode_features
from tcnaps_suite.experiments.rivals import head_classifier

BASE = "Transductive"
SAME_TRAINING = ("Learned Steps", "Transductive+")  # both through refinement: they differ in the learned numbers alone
COLUMNS = ["evaluation", "replicate", "dataset", "domain", "images", "episode", "variant", "accuracy"]


def head_accuracies(study: Study, evaluation: str, variants: Sequence[str], scales: Sequence[float]) -> pd.DataFrame:
    """The accuracy of Transductive and of variants with other heads on every episode of an evaluation.

    A training's own head is read from the evaluation's rows. Other scales are applied to the features of Transductive's
    model: those of `variants` with another scale at test, and `scales`, which make the variants "scale <number>".
    A row per variant and episode, Transductive first, has `COLUMNS` and difference (from Transductive's accuracy);
    last come the differences between the two of `SAME_TRAINING`.
    """
    recorded = [BASE, *(name for name in variants if ALL_VARIANTS[name].scale_at_test is None)]
    rows = load_rows(study, evaluation, needed_trainings(recorded), [study.replicate])
    accuracies = episode_accuracies(variant_predictions(rows, recorded, *study.refinement.limits))
    rescaled = {name: ALL_VARIANTS[name].scale_at_test for name in variants if name not in recorded}
    rescaled |= {f"scale {scale:g}": scale for scale in scales}
    model, settings = load_model(study, ALL_VARIANTS[BASE].training), study.evaluations[evaluation]
    heads = {name: replace(model.head, scale=scale) for name, scale in rescaled.items()}
    classifiers = {name: head_classifier(head, *study.refinement.limits) for name, head in heads.items()}
    sources = [open_split(study, dataset, "test") for dataset in settings.datasets]
    episodes = episode_features(draws(study, sources, settings.protocol, settings.episodes), model)
    others = compare_classifiers(episodes, classifiers, next(iter(classifiers)))
    others = others.rename(columns={"classifier": "variant"}).assign(evaluation=evaluation, replicate=study.replicate)
    table = pd.concat([accuracies[COLUMNS], others[COLUMNS]], ignore_index=True)
    pair = difference_from(table, "variant", SAME_TRAINING[1])
    pair = pair[pair["variant"] == SAME_TRAINING[0]].assign(variant=" minus ".join(SAME_TRAINING)).dropna()
    return pd.concat([difference_from(table, "variant", BASE), pair], ignore_index=True)


def learned_numbers(study: Study) -> pd.DataFrame:
    """The meta-learned numbers of the study's heads, by name and step: where they start, and as learned."""
    rows = []
    for training in study.trainings:
        if names := ALL_TRAININGS[training].learned:
            model = load_model(study, training)
            start, end = model.first_head, model.head
            for name in names:
                learned = np.atleast_1d(getattr(end, name))
                rows += [(training, study.replicate, name, k, getattr(start, name), x) for k, x in enumerate(learned)]
    return pd.DataFrame(rows, columns=["training", "replicate", "number", "step", "start", "learned"])
