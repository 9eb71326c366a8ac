"""Episodic training of the task encoder and the FiLM generator on a frozen backbone (appendix A.3)."""

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor
from torch.nn import functional as F

from tcnaps.config import Study
from tcnaps.config.dependencies import job_key
from tcnaps.config.settings import MetaTraining
from tcnaps.config.storage import file_digest
from tcnaps.data import ImageSource, open_split
from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.method.clustering import LowVarianceWarning, cluster
from tcnaps.method.episode import Episode
from tcnaps.method.model import TransductiveCNAPS
from tcnaps.method.variants import ALL_TRAININGS
from tcnaps.training.checkpoints import backbone_file, checkpoint_folder, finished_log, new_model, refuse_imported, save
from tcnaps.training.processes import add_up_gradients, gather, rank, run_together, share
from tcnaps.training.resuming import Resumable, accuracy_and_confidence, run_steps


def meta_training_steps(
    model: TransductiveCNAPS, study: Study, steps: Iterable[Iterable[Episode]], optimiser: torch.optim.Optimizer
) -> Iterator[dict]:
    """Meta-training itself: one optimiser step for the episodes of each of `steps` (`training_episodes`).

    A step's loss is the mean over its episodes, plus one FiLM penalty per episode, not divided by their number. A row
    has the number of episodes so far, loss per query, learning_rate, and train_accuracy and confidence in [0, 1].
    """
    settings = study.meta_training
    for episodes in steps:
        rows = []
        optimiser.zero_grad(set_to_none=True)
        for episode in episodes:
            loss, accuracy, confidence = episode_loss(model, episode, study)
            (loss / settings.episodes_per_step + settings.film_penalty * model.film_generator.penalty()).backward()
            per_query = loss.item() / (len(episode.query_labels) if settings.query_loss == "sum" else 1)
            rows.append((episode.draw.index + 1, per_query, accuracy, confidence))
        rows = gather(rows)
        add_up_gradients(model)
        set_learning_rates(optimiser, settings, rows[0][0] - 1)
        optimiser.step()
        means = dict(zip(("loss", "train_accuracy", "confidence"), np.mean(rows, axis=0)[1:].tolist()))
        yield {"episode": rows[-1][0], **means, "learning_rate": optimiser.param_groups[0]["lr"]}


def meta_train(
    study: Study, training: str, device: torch.device | str = "cpu", save_every: int = 10, processes: int = 1
) -> pd.DataFrame:
    """Runs one training, saves the checkpoint with the best validation and returns the log.

    All trainings see the same episodes. Several `processes` share the episodes of a step or validation; their gradients
    differ by rounding only. It resumes and fails as `pretraining.pretrain` does. The log has `meta_training_steps`'
    rows. A validated step adds the columns of `summarise_validation`; the first row, episode 0, has only these.
    """
    refuse_imported(study, training)
    settings, path = study.meta_training, checkpoint_folder(study) / f"{training}.safetensors"
    sources = [open_split(study, name, "train") for name in settings.datasets]
    validation = [open_split(study, name, "valid") for name in settings.validation_datasets]
    model = new_model(study, training).to(device).train()
    backbone = file_digest(backbone_file(study))
    key = job_key([*(s.digest for s in sources + validation), backbone], study, "meta_training", training=training)
    if processes != 1 and finished_log(path, key) is None:
        shared, options = "meta_training.episodes_per_step", {"training": training, "save_every": save_every}
        run_together(processes, meta_train, study, device, shared, **options)
    if (log := finished_log(path, key)) is not None:
        return pd.DataFrame(log)
    optimiser = new_optimiser(model, study)
    n_steps = math.ceil(settings.episodes / settings.episodes_per_step)
    validate_every = max(1, settings.validate_every // settings.episodes_per_step)  # steps
    progress: dict = {"log": [], "best": {}, "best_weights": {}}

    def steps(first: int) -> Iterator[dict]:
        return meta_training_steps(model, study, training_episodes(sources, study, device, first), optimiser)

    def end_of_step(row: dict) -> dict:
        if progress["steps"] % validate_every == 0 or progress["steps"] == n_steps:
            summary = summarise_validation(validate(model, validation, study))
            row |= summary
            if is_better(summary, progress["best"], settings.keep_best_by):
                best = {name: x.clone() for name, x in model.state_dict().items() if not name.startswith("backbone.")}
                progress.update(best=summary, best_weights=best)
        progress["log"].append(row)
        return row

    parts = {name: getattr(model, name) for name in ("task_encoder", "film_generator", "head_numbers")}
    state = Resumable(path, key, parts | {"optimiser": optimiser}, progress)
    with warnings.catch_warnings(action="ignore", category=LowVarianceWarning):
        if not progress["log"]:  # for comparison only: these weights are almost the unadapted backbone, and never kept
            progress["log"].append({"episode": 0, **summarise_validation(validate(model, validation, study))})
        run_steps(state, save_every, steps, end_of_step, "meta_training", n_steps)
    header = {"study": study.name, "training": training, "seed": study.training_seed, "backbone": backbone}
    header |= {"meta_training": settings.model_dump(), "key": key, "log": progress["log"]}
    header["valid_accuracy"] = progress["best"]["valid_accuracy"]
    if rank() == 0:
        save(path, progress["best_weights"], header)
    return pd.DataFrame(finished_log(path, key))


def new_optimiser(model: TransductiveCNAPS, study: Study) -> torch.optim.Optimizer:
    """Adam for everything that is learned: the networks and, in some trainings, numbers of the head."""
    settings = study.meta_training
    networks = [*model.task_encoder.parameters(), *model.film_generator.parameters()]
    rate, rate_of_head = settings.learning_rate, settings.head_learning_rate or settings.learning_rate
    head = {"params": list(model.head_numbers.values()), "initial_lr": rate_of_head}
    return torch.optim.Adam([{"params": networks, "initial_lr": rate}, head], rate)


def set_learning_rates(optimiser: torch.optim.Optimizer, settings: MetaTraining, episodes: int) -> None:
    """Sets the learning rates of the step after so many episodes: constant, or cosine decay to 0."""
    progress = min(episodes / settings.episodes, 1.0)
    share = (1 + math.cos(math.pi * progress)) / 2 if settings.schedule == "cosine" else 1.0
    for group in optimiser.param_groups:
        group["lr"] = share * group["initial_lr"]


def training_episodes(
    sources: Sequence[ImageSource], study: Study, device: torch.device | str = "cpu", first: int = 0
) -> Iterator[Iterator[Episode]]:
    """This process's episodes of every step from `first` on, each of a dataset drawn uniformly."""
    settings, seed = study.meta_training, study.training_seed

    def load(index: int) -> Episode:
        source = sources[np.random.default_rng([seed, 2, index]).integers(len(sources))]
        return load_episode(source, draw_episode(source, settings.protocol, seed, index), device)

    for start in range(first * settings.episodes_per_step, settings.episodes, settings.episodes_per_step):
        yield map(load, share(range(start, start + settings.episodes_per_step)))


def episode_loss(model: TransductiveCNAPS, episode: Episode, study: Study) -> tuple[Float[Tensor, ""], float, float]:
    """Cross-entropy of the queries, accuracy, and confidence (the mean probability of the predicted class)."""
    features = model.features(episode)
    refines = ALL_TRAININGS[model.training_name].refinement_in_training  # gradients pass through the loop
    logits = cluster(*features, model.head, *(study.refinement.limits if refines else (0, 0))).logits
    loss = F.cross_entropy(logits, episode.query_labels, reduction=study.meta_training.query_loss)
    return loss, *accuracy_and_confidence(logits, episode.query_labels)


@torch.no_grad()
def validate(
    model: TransductiveCNAPS, sources: Sequence[ImageSource], study: Study
) -> dict[str, Float[np.ndarray, "n_episodes"]]:
    """Accuracies in [0, 1] on the validation episodes of each dataset, by the dataset's name."""
    settings = study.meta_training
    limits = study.refinement.limits if settings.validate_refined else (0, 0)
    protocol = settings.validation_protocol or settings.protocol
    device, accuracies = next(model.parameters()).device, {}
    model.eval()
    for source in sources:
        shared = []
        for index in share(range(settings.validation_episodes)):
            episode = load_episode(source, draw_episode(source, protocol, study.seed, index), device)
            correct = model.classify(episode, *limits).logits.argmax(1) == episode.query_labels
            shared.append(correct.float().mean().item())
        accuracies[source.dataset] = np.array(gather(shared))
    model.train()
    return accuracies


def summarise_validation(accuracies: dict[str, Float[np.ndarray, "n_episodes"]]) -> dict[str, float]:
    """valid_accuracy (the mean over datasets), its 95% half-width valid_interval, and valid_accuracy_<dataset>.

    The interval combines those of the datasets, which are Student's t; a single episode has none (NaN).
    """
    means = {f"valid_accuracy_{dataset}": float(values.mean()) for dataset, values in accuracies.items()}
    half_widths = [
        math.nan if len(values) < 2 else stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
        for values in accuracies.values()
    ]
    interval = float(np.linalg.norm(half_widths)) / len(half_widths)
    return {"valid_accuracy": float(np.mean(list(means.values()))), "valid_interval": interval, **means}


def is_better(new: dict[str, float], best: dict[str, float], rule: str) -> bool:
    """Whether a summary beats the best so far (empty: none yet), by `keep_best_by` of a study."""
    if rule == "mean accuracy" or not best:
        return not best or new["valid_accuracy"] > best["valid_accuracy"]
    better = [new[name] > best[name] for name in new if name.startswith("valid_accuracy_")]
    return sum(better) >= len(better) / 2
