"""Episodic training of the task encoder and the FiLM generator on a frozen backbone (appendix A.3)."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor
from torch.nn import functional as F

from tcnaps.config import Study
from tcnaps.config.dependencies import job_key
from tcnaps.config.storage import file_digest
from tcnaps.datasets import open_split
from tcnaps.datasets.image_source import ImageSource
from tcnaps.episodes.loading import read_episodes
from tcnaps.episodes.sampling import Draw, draw_episode
from tcnaps.method.clustering import cluster, trajectory
from tcnaps.method.episode import Episode
from tcnaps.method.memory import kept_memory
from tcnaps.method.model import TransductiveCNAPS
from tcnaps.method.variants import TRAININGS
from tcnaps.training.checkpoints import backbone_file, checkpoint_folder, finished_log, new_model, refuse_imported, save
from tcnaps.training.lite import sampled_features, sampled_support
from tcnaps.training.processes import ALONE, Team, run_together
from tcnaps.training.resuming import Resumable


def meta_training_steps(
    model: TransductiveCNAPS,
    study: Study,
    episodes: Iterable[Episode],
    optimiser: torch.optim.Optimizer,
    team: Team = ALONE,
) -> Iterator[dict]:
    """Meta-training itself: one optimiser step for every `episodes_per_step` of the episodes, until there are no more.

    The loss is the cross-entropy of an episode's queries, summed or averaged as the study says, averaged over the
    episodes of a step, plus for every episode the undivided penalty on the FiLM regularisers.

    Args:
        episodes: this process' share of every step's; all of them where it is alone.

    Yields:
        One row per step: episode (how many there have been), loss (per query) and train_accuracy in [0, 1].

    Raises:
        FloatingPointError: the loss is not finite.
    """
    settings, episodes = study.meta_training, iter(episodes)
    while True:
        found = []
        optimiser.zero_grad(set_to_none=True)
        for episode in islice(episodes, len(range(team.rank, settings.episodes_per_step, team.size))):
            loss, accuracy = episode_loss(model, episode, study)
            if not loss.isfinite():
                where = f"episode {episode.draw.index} ({episode.draw.dataset})"
                raise FloatingPointError(f"{where}: the loss is {loss.item()}; lower meta_training.learning_rate")
            (loss / settings.episodes_per_step + settings.film_penalty * model.film_generator.penalty()).backward()
            loss = loss.item() / (len(episode.query_labels) if settings.query_loss == "sum" else 1)
            found.append((episode.draw.index + 1, loss, accuracy))
        if not found:
            return
        counts, losses, accuracies = zip(*team.gather(found))
        team.add_up_gradients(model)
        optimiser.step()
        yield {"episode": counts[-1], "loss": float(np.mean(losses)), "train_accuracy": float(np.mean(accuracies))}


def meta_train(
    study: Study,
    training: str,
    device: torch.device | str = "cpu",
    save_every: int = 10,
    workers: int = 0,
    processes: int = 1,
    team: Team = ALONE,
) -> pd.DataFrame:
    """Runs one of the six trainings, saves the best checkpoint of its validations and returns the log.

    Every training sees the same episodes. An interrupted call goes on from its last saved state and ends with the very
    same weights. Where the checkpoint is there already, made by the same code and settings, nothing is trained.

    Args:
        training: a name of `TRAININGS`.
        save_every: optimiser steps between saved states.
        workers: processes that read images ahead; see `tcnaps.episodes.loading`. They change nothing else.
        processes: that share the episodes of every step and of every validation; see `tcnaps.training.processes`.
            Gradients are the same but for rounding.
        team: set by `run_together`, which calls this function in every process.

    Returns:
        The rows of `meta_training_steps`, at validations with the columns of `summarise_validation`. A first row, of
        episode 0, has only these: the model before any training.

    Raises:
        CheckpointError: there is no backbone, a file is damaged, or the study imports this training.
        FloatingPointError: the loss is not finite.
        ProcessError: one of several processes has ended early.
        UserError: there are more processes than episodes in a step, or than GPUs.
    """
    refuse_imported(study, training)
    settings, path = study.meta_training, checkpoint_folder(study) / f"{training}.safetensors"
    sources = [open_split(study, name, "train") for name in settings.datasets]
    validation = [open_split(study, name, "valid") for name in settings.validation_datasets]
    model = new_model(study, training).to(device).train()
    optimiser = new_optimiser(model, study)
    backbone = file_digest(backbone_file(study))
    key = job_key([*(s.digest for s in sources + validation), backbone], study, "meta_training", training=training)
    if (log := finished_log(path, key)) is not None:
        return pd.DataFrame(log)
    if processes != 1:
        options = {"device": device, "limit": ("meta_training.episodes_per_step", settings.episodes_per_step)}
        return run_together(processes, meta_train, study, training, save_every=save_every, workers=workers, **options)
    n_steps = math.ceil(settings.episodes / settings.episodes_per_step)
    validate_every = max(1, settings.validate_every // settings.episodes_per_step)
    parts = {"task_encoder": model.task_encoder, "film_generator": model.film_generator, "optimiser": optimiser}
    progress = {"log": [], "best": {}, "best_weights": {}}
    with team.resuming(Resumable(path, key, parts, progress)) as state, kept_memory():
        log = progress["log"]
        if not log:  # to compare with, never to be kept: almost the unadapted backbone
            log.append({"episode": 0, **summarise_validation(validate(model, validation, study, workers, team))})
        first = len(log) - 1
        episodes = read_episodes(training_tasks(sources, study, first, team), workers, device)
        bar = team.bar(f"meta-training {training}", total=n_steps, initial=first, unit="step")
        for step, row in enumerate(meta_training_steps(model, study, episodes, optimiser, team), first + 1):
            bar.update()
            if step % validate_every == 0 or step == n_steps:
                accuracies = validate(model, validation, study, workers, team)
                row |= summarise_validation(accuracies)
                keep_best(progress, model, accuracies, settings.keep_best_by)
                bar.set_postfix(valid=f"{row['valid_accuracy']:.3f}", refresh=False)
            log.append(row)
            if team.leads and step % save_every == 0:
                state.save()
        header = {"study": study.name, "training": training, "seed": study.training_seed, "backbone": backbone}
        header |= {"meta_training": settings.model_dump(), "key": key, "log": log}
        header["valid_accuracy"] = float(np.mean(list(progress["best"].values())))
        if team.leads:
            save(path, progress["best_weights"], header)
    bar.close()
    return pd.DataFrame(log)


def new_optimiser(model: TransductiveCNAPS, study: Study) -> torch.optim.Optimizer:
    """Adam for all that is learned."""
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.Adam(learned, study.meta_training.learning_rate)


def training_tasks(
    sources: Sequence[ImageSource], study: Study, first: int = 0, team: Team = ALONE
) -> Iterator[tuple[ImageSource, Draw]]:
    """This process' episodes of meta-training from step `first` on, for `read_episodes`.

    Each is a dataset drawn uniformly, then an episode of its training classes.
    """
    settings = study.meta_training
    n_steps = math.ceil(settings.episodes / settings.episodes_per_step)
    for index in range(first * settings.episodes_per_step, n_steps * settings.episodes_per_step):
        if index % settings.episodes_per_step % team.size != team.rank:
            continue
        source = sources[np.random.default_rng([study.training_seed, 2, index]).integers(len(sources))]
        yield source, draw_episode(source, settings.protocol, study.training_seed, index)


def episode_loss(model: TransductiveCNAPS, episode: Episode, study: Study) -> tuple[Float[Tensor, ""], float]:
    """Cross-entropy of the queries, and the share of them labelled correctly.

    The "refined" trainings take it after refinement by the stopping rule, so that gradients pass through the loop; all
    others from the support set's statistics alone.
    """
    sample = sampled_support(episode, study.meta_training.support_gradients, study.training_seed)
    features = sampled_features(model, episode, sample)
    if TRAININGS[model.training_name].refinement_in_training:
        logits = cluster(*features, model.head, *study.refinement.limits).logits
    else:
        logits = trajectory(*features, model.head, 0)[0]
    accuracy = (logits.argmax(1) == episode.query_labels).float().mean().item()
    loss = F.cross_entropy(logits, episode.query_labels, reduction=study.meta_training.query_loss)
    return loss, accuracy


@torch.no_grad()
def validate(
    model: TransductiveCNAPS, sources: Sequence[ImageSource], study: Study, workers: int = 0, team: Team = ALONE
) -> dict[str, Float[np.ndarray, "n_episodes"]]:
    """Accuracies in [0, 1] on the validation episodes of each dataset, by its name."""
    settings = study.meta_training
    limits = study.refinement.limits if settings.validate_refined else (0, 0)
    protocol = settings.validation_protocol or settings.protocol
    device = next(model.parameters()).device
    model.eval()
    accuracies = {}
    for source in sources:
        numbers = team.share(range(settings.validation_episodes))
        tasks = ((source, draw_episode(source, protocol, study.seed, index)) for index in numbers)
        right = (
            model.classify(episode, *limits).logits.argmax(1) == episode.query_labels
            for episode in read_episodes(tasks, workers, device)
        )
        accuracies[source.dataset] = np.array(team.gather([of_episode.float().mean().item() for of_episode in right]))
    model.train()
    return accuracies


def summarise_validation(accuracies: dict[str, Float[np.ndarray, "n_episodes"]]) -> dict[str, float]:
    """valid_accuracy (the mean over datasets), its 95% half-width valid_interval, and valid_accuracy_<dataset>.

    The interval joins those of the datasets, each from Student's t; a single episode has none (NaN).
    """
    means = {f"valid_accuracy_{dataset}": float(values.mean()) for dataset, values in accuracies.items()}
    half_widths = [
        math.nan if len(a) < 2 else stats.t.ppf(0.975, len(a) - 1) * stats.sem(a) for a in accuracies.values()
    ]
    interval = float(np.linalg.norm(half_widths)) / len(half_widths)
    return {"valid_accuracy": float(np.mean(list(means.values()))), "valid_interval": interval, **means}


def is_better(new: dict[str, float], best: dict[str, float], rule: str) -> bool:
    """Whether a checkpoint's validation accuracies, by dataset, beat those of the best one so far (empty = none yet).

    Args:
        rule: "mean accuracy", or "half of the datasets", the released code's: as many datasets improved as not.
    """
    if rule == "mean accuracy" or not best:
        return not best or float(np.mean(list(new.values()))) > float(np.mean(list(best.values())))
    return sum(new[name] > best[name] for name in new) >= math.ceil(len(new) / 2)


def keep_best(progress: dict, model: TransductiveCNAPS, accuracies: dict[str, np.ndarray], rule: str) -> None:
    """Copies the meta-learned weights into `progress` if these validation accuracies are the best so far."""
    means = {name: float(values.mean()) for name, values in accuracies.items()}
    if is_better(means, progress["best"], rule):
        weights = {name: value.detach().clone() for name, value in model.adaptation_state().items()}
        progress.update(best=means, best_weights=weights)
