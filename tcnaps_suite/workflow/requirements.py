"""What a study needs of its datasets: checked before anything is trained on them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tcnaps.config import FixedProtocol, Study, UserError, VariableProtocol
from tcnaps.data import open_splits
from tcnaps.data.image_source import ImageSource
from tcnaps.episodes.sampling import describe_episode, draw_episode

# The section of the study, the dataset, the split, the protocol of the episodes, if any, and how many are counted on.
Need = tuple[str, str, str, FixedProtocol | VariableProtocol | None, int]


def needs_of(study: Study) -> list[Need]:
    """Every split that a study uses, for training, validation and testing. Imported weights need no training."""
    needs: list[Need] = []
    if not study.imported:
        needs += [("pretraining", name, "train", None, 0) for name in study.pretraining.datasets]
    if set(study.trainings) - set(study.imported):
        training = study.meta_training
        validation = training.validation_protocol or training.protocol
        needs += [("meta_training", name, "train", training.protocol, 1) for name in training.datasets]
        needs += [("meta_training", name, "valid", validation, 1) for name in training.validation_datasets]
    for key, evaluation in study.evaluations.items():
        counted = evaluation.protocol, evaluation.episodes
        needs += [(f"evaluations.{key}", name, "test", *counted) for name in evaluation.datasets]
    return needs


def unmet_needs(study: Study, dataset: str, splits: Mapping[str, ImageSource]) -> list[str]:
    """Says why a study can't use a dataset with these splits: one message for each need that is not met."""
    messages = []
    for key, _, split, protocol, n_episodes in (need for need in needs_of(study) if need[1] == dataset):
        if split not in splits:
            there = ", ".join(splits) or "none"
            messages.append(
                f"{key} uses the split '{split}' of '{dataset}', which has: {there}. "
                "Change the dataset's splits, or take it from that list."
            )
        elif protocol is not None:
            try:
                check_protocol(splits[split], protocol)
                draw_episode(splits[split], protocol, study.seed, n_episodes - 1)  # without replacement, some run out
            except ValueError as error:
                messages.append(f"{key}.protocol, dataset '{dataset}', split '{split}': {error}")
    return messages


def check_protocol(split: ImageSource, protocol: FixedProtocol | VariableProtocol) -> None:
    """Checks that every episode of a protocol can be drawn from a split. A ValueError names what is too small."""
    if not split.n_classes:
        raise ValueError("it has no class; add some, or choose another split")
    sizes, reachable = split.class_sizes, _reachable(split, protocol)
    smallest = reachable[sizes[reachable].argmin()] if len(reachable) else 0
    # If an episode can be drawn when all classes are as small as the smallest, then every episode can be drawn.
    starts, names = np.arange(split.n_classes + 1) * sizes[smallest], (split.class_names[smallest],) * split.n_classes
    describe_episode(np.random.default_rng(0), replace(split, class_starts=starts, class_names=names), protocol)


def _reachable(split: ImageSource, protocol: FixedProtocol | VariableProtocol) -> np.ndarray:
    """The classes that may occur in an episode."""
    if isinstance(protocol, VariableProtocol) and split.spans is not None:
        eligible = [span for span in split.spans if protocol.minimum_way <= len(span) <= protocol.maximum_span]
        return np.unique(np.concatenate(eligible)) if eligible else np.arange(0)
    if isinstance(protocol, VariableProtocol) and split.superclasses is not None:
        members = Counter(split.superclasses)
        return np.flatnonzero([members[name] >= protocol.minimum_way for name in split.superclasses])
    if isinstance(protocol, FixedProtocol) and not protocol.replacement:  # draws among classes with enough images
        large = np.flatnonzero(split.class_sizes >= protocol.shot + protocol.queries_per_class)
        return large if len(large) >= protocol.way else np.arange(split.n_classes)
    return np.arange(split.n_classes)


def open_usable(
    study: Study, names: Sequence[str], split: str, protocol: FixedProtocol | VariableProtocol
) -> tuple[list[ImageSource], list[str]]:
    """The sources of every dataset that a protocol can draw from, at least one, and why others were left out."""
    usable, left_out = [], []
    for name in names:
        source = open_splits(study, name).get(split)
        try:
            if source is None:
                raise ValueError(f"there is no split '{split}'")
            check_protocol(source, protocol)
            usable.append(source)
        except ValueError as error:
            left_out.append(f"{name}: {error}")
    if not usable:
        raise UserError(f"No dataset will do for this protocol: {'; '.join(left_out) or 'the study tests none'}")
    return usable, left_out
