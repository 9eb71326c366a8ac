"""What the jobs of a study ask a cluster for, and about how many hours they take, with the arithmetic.

All rates and sizes below were measured at the stated sizes of images and are scaled by the number of pixels;
docs/scaling.md says how, and how far the estimate of the built-in study is from what its jobs took. For GPUs nothing
was measured: `GPU` is an assumption.
"""

import math
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from tcnaps.config import FixedProtocol, Study, VariableProtocol
from tcnaps_suite.workflow.progress import read_times

Sizes = Mapping[str, Mapping[str, tuple[int, int]]]  # dataset → split → numbers of classes and of images

# Images per second on two cores in float32 and bfloat16, by the images' size in pixels.
RATES = {
    "pretraining": {84: (27, 51), 42: (120, 205), 32: (220, 350)},
    "meta-training": {84: (44, 121)},  # 400 images in 8.99 and 3.30 s, docs/speed.md
    "evaluation": {84: (112, 351)},  # 400 images in 3.58 and 1.14 s, docs/speed.md
}
# Of one image of 84 pixels: operations, where a backward pass costs as much as one or two forward passes (2.09e9 in
# the backbone, 0.20e9 in the set encoder, docs/speed.md) ...
OPERATIONS = {"pretraining": 3 * 2.09e9, "meta-training": 2 * 2.09e9 + 3 * 0.20e9, "evaluation": 2.29e9}
# ... and megabytes at the peak, from 400 images in float32: with every activation kept, in training, and in testing.
MEGABYTES = {"pretraining": 7500 / 400, "meta-training": 3570 / 400, "evaluation": 500 / 400}
GPU = 0.3 * 19.5e12  # operations per second: assumed, 30% of what an NVIDIA A100 can do in float32
LIBRARIES = 1000  # MB of a process that has loaded them
ROW = 4 * 227e-6  # MB of a row of an evaluation with 10 recorded steps, and three copies while tables are computed
LEAST = {"pretraining": 4000, "meta-training": 2500, "evaluation": 2500, "figures": 2000, "data": 1000}  # MB

LONGEST, SHORTEST = 24 * 60, 60  # minutes: what training that needs more is asked for (it is resumed), and drawing
LAST_RUN = "last run"
# What is asked for: so many times the last run, as other machines are slower, or the arithmetic, which is up to five
# times too low for small images (docs/scaling.md).
MARGIN_OF_RUN, MARGIN_OF_ARITHMETIC = 3, 6
# Rules of their own, which compute much that is not estimated here, and what they are most like.
OTHERS = {"differences": "pretraining", "soft_k_means": "evaluation", "data": "data"}
OTHERS |= dict.fromkeys("rivals balance log_determinant scale_in_training".split(), "evaluation")
OTHERS |= dict.fromkeys(("active_learning", "continual_learning"), "evaluation")
ON_DEVICE = ("pretrain", "meta_train", "evaluate", "differences")  # how rules begin whose notebooks take a device


class Work(NamedTuple):
    """A number of images that one kind of computation sees, and where the number comes from.

    Attributes:
        kind: of `RATES`.
        images: None where it is not known before data is prepared.
    """

    kind: str
    images: float | None
    arithmetic: str


class Estimate(NamedTuple):
    """Hours of a job on one processor core and on one GPU; None where they are not known.

    Attributes:
        arithmetic: where they come from.
    """

    core_hours: float | None
    gpu_hours: float | None
    arithmetic: str


def asks(
    study: Study, rule: str, sizes: Sizes, times: Mapping, device: str = "cpu", threads: int = 1, processes: int = 1
) -> dict:
    """The resources of a rule of the Snakefile: mem_mb, runtime in minutes and, on a device that is a GPU, gpu.

    Args:
        sizes: of the datasets, as far as they are known.
        times: of the last run, by `last_times`.
        processes: that share each training and each evaluation, each with its own model and GPU. They shorten nothing
            here: what they gain was not measured.
    """
    copies = processes if _training(rule) or rule.startswith("pretrain") else 1
    kind, on_gpu = _kind(rule), device.startswith("cuda") and rule.startswith(ON_DEVICE)
    known = estimate(study, rule, sizes, times)
    if known is None:
        minutes = SHORTEST if kind in ("figures", "data") or rule == "soft_k_means" else LONGEST
    elif (hours := known.gpu_hours if on_gpu and known.gpu_hours else known.core_hours) is None:
        minutes = LONGEST
    else:
        margin = MARGIN_OF_RUN if known.arithmetic == LAST_RUN else MARGIN_OF_ARITHMETIC
        alone = margin * 60 * hours / (1 if on_gpu else threads)
        minutes = min(LONGEST, max(SHORTEST, 15 * math.ceil(alone / 15)))
    return {"mem_mb": copies * _megabytes(study, kind), "runtime": minutes, **({"gpu": copies} if on_gpu else {})}


def estimate(study: Study, rule: str, sizes: Sizes, times: Mapping) -> Estimate | None:
    """How long a rule's job takes: as long as the last time, or by arithmetic; None for what has none, as drawing."""
    if rule in times:
        seconds, threads = times[rule]
        return Estimate(seconds * threads / 3600, None, LAST_RUN)
    works = list(work_of(study, rule, sizes))
    if not works:
        return None
    operations = {work.kind: OPERATIONS[work.kind] * (study.image_size / 84) ** 2 for work in works}
    rates = {work.kind: _rate(study, work.kind) for work in works}
    text = " + ".join(f"{work.arithmetic} ÷ {rates[work.kind]:,.3g}/s" for work in works)
    text += f" (on a GPU × {', '.join(f'{n:.2g}' for n in operations.values())} operations per image)"
    if any(work.images is None for work in works):
        return Estimate(None, None, text)
    core = sum(work.images / rates[work.kind] for work in works)
    gpu = sum(work.images * operations[work.kind] for work in works) / GPU
    return Estimate(core / 3600, gpu / 3600, text)


def work_of(study: Study, rule: str, sizes: Sizes) -> Iterable[Work]:
    """What a training or an evaluation computes; nothing for other rules."""
    kind, training = _kind(rule), _training(rule)
    if rule in OTHERS:
        return
    if kind == "pretraining":
        yield _pretraining(study, sizes)
    elif kind == "meta-training" and training:
        yield from _meta_training(study, sizes)
    elif training:
        for name, evaluation in study.evaluations.items():
            if training in evaluation.trainings:
                episode = images_per_episode(evaluation.protocol, evaluation.datasets, "test", sizes)
                n = len(evaluation.datasets)
                text = f"{n} × {evaluation.episodes:,} episodes of {name} × {episode:.0f} images"
                yield Work("evaluation", n * evaluation.episodes * episode, text)


def _pretraining(study: Study, sizes: Sizes) -> Work:
    settings, names = study.pretraining, study.pretraining.datasets
    if missing := [name for name in names if "train" not in sizes.get(name, {})]:
        text = f"{settings.epochs} epochs × the images of {', '.join(missing)} (unknown until the data is there)"
        return Work("pretraining", None, text)
    n = sum(sizes[name]["train"][1] for name in names)
    text = f"{settings.epochs} epochs × {n // settings.batch_size:,} batches of {settings.batch_size} images"
    return Work("pretraining", settings.epochs * (n // settings.batch_size) * settings.batch_size, text)


def _meta_training(study: Study, sizes: Sizes) -> Iterable[Work]:
    settings = study.meta_training
    episode = images_per_episode(settings.protocol, settings.datasets, "train", sizes)
    text = f"{settings.episodes:,} training episodes × {episode:.0f} images"
    yield Work("meta-training", settings.episodes * episode, text)
    protocol, names = settings.validation_protocol or settings.protocol, settings.validation_datasets
    episode = images_per_episode(protocol, names, "valid", sizes)
    n, each = 1 + math.ceil(settings.episodes / settings.validate_every), settings.validation_episodes
    text = f"{n} validations × {len(names)} × {each} episodes × {episode:.0f} images"
    yield Work("evaluation", n * len(names) * each * episode, text)


def images_per_episode(
    protocol: FixedProtocol | VariableProtocol, datasets: Iterable[str], split: str, sizes: Sizes
) -> float:
    """Support and query images of an episode, the mean over the datasets.

    Of the variable protocol, an expectation in which all classes of a dataset are of one size, and without a hierarchy;
    where a dataset's size is not known, classes and images are as many as an episode can use.
    """
    if isinstance(protocol, FixedProtocol):
        return float(_largest(protocol))
    means = [_variable_images(protocol, *sizes.get(name, {}).get(split, (10**6, 10**9))) for name in datasets]
    return sum(means) / len(means)


def _variable_images(protocol: VariableProtocol, n_classes: int, n_images: int) -> float:
    size = n_images // max(n_classes, 1)
    queries = min(protocol.queries_per_class, size // 2)
    most = min(protocol.maximum_support_per_class, size - queries)
    ways = range(protocol.minimum_way, max(protocol.minimum_way, min(protocol.maximum_way, n_classes)) + 1)
    # The support set is a uniform share of `most` from each class, cut off at a maximum.
    totals = [min(protocol.maximum_support_size, way * shot) for way in ways for shot in range(1, most + 1)]
    return queries * sum(ways) / len(ways) + sum(totals) / max(len(totals), 1)


def core_seconds(study: Study, sizes: Sizes, rule: str) -> float | None:
    """Of a job on one processor core, by arithmetic alone; None where that is not known."""
    found = estimate(study, rule, sizes, {})
    return None if found is None or found.core_hours is None else 3600 * found.core_hours


def last_times(study: Study, sizes: Sizes) -> dict[str, tuple[float, int]]:
    """Seconds and threads of each job by its last run, times what it has grown by since."""
    table = study.of_replicate(0).results_folder / "times.csv"
    return {job: row[:2] for job, row in read_times(table, partial(core_seconds, study, sizes)).items()}


def _kind(rule: str) -> str:
    begins = {"pretrain": "pretraining", "meta_train_": "meta-training", "evaluate_": "evaluation"}
    return next((kind for start, kind in begins.items() if rule.startswith(start)), OTHERS.get(rule, "figures"))


def _training(rule: str) -> str:
    """Of meta_train_support_replicate_1: support."""
    found = re.fullmatch(r"(?:meta_train|evaluate)_(\w+?)(?:_replicate_\d+)?", rule)
    return found[1] if found else ""


def _megabytes(study: Study, kind: str) -> int:
    """What a job needs at its peak, in full hundreds."""
    if kind in ("figures", "data"):
        needed = ROW * _rows(study) if kind == "figures" else 0
    else:
        protocols = [study.meta_training.protocol, *(evaluation.protocol for evaluation in study.evaluations.values())]
        images = (
            max(study.images_at_once, *map(_largest, protocols)) if kind == "evaluation" else _largest(protocols[0])
        )
        images = study.pretraining.batch_size if kind == "pretraining" else images
        needed = images * MEGABYTES[kind] * (study.image_size / 84) ** 2
    return max(LEAST[kind], 100 * math.ceil((LIBRARIES + needed) / 100))


def _largest(protocol: FixedProtocol | VariableProtocol) -> int:
    """Images of the largest episode."""
    if isinstance(protocol, FixedProtocol):
        return protocol.way * (protocol.shot + protocol.queries_per_class)
    return protocol.maximum_support_size + protocol.maximum_way * protocol.queries_per_class


def _rows(study: Study) -> float:
    """Rows of the largest evaluation, in all trainings and replicates."""
    return max(
        len(study.seeds) * len(e.trainings) * len(e.datasets) * e.episodes * _queries(e.protocol)
        for e in study.evaluations.values()
    )


def _queries(protocol: FixedProtocol | VariableProtocol) -> float:
    fixed = isinstance(protocol, FixedProtocol)
    low, high = (protocol.way,) * 2 if fixed else (protocol.minimum_way, protocol.maximum_way)
    return protocol.queries_per_class * (low + high) / 2


def _rate(study: Study, kind: str) -> float:
    """Images per second on one core."""
    measured = RATES[kind]
    size = min(measured, key=lambda pixels: abs(math.log(pixels / study.image_size)))
    return measured[size][study.precision == "bfloat16"] / 2 * (size / study.image_size) ** 2
