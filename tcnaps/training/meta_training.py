"""Episodic training of the task encoder and the FiLM generator on a frozen backbone (appendix A.3)."""

import math
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from tqdm.auto import tqdm

from tcnaps.config import Study
from tcnaps.config.dependencies import job_key
from tcnaps.datasets import open_split
from tcnaps.datasets.image_source import ImageSource
from tcnaps.episodes.loading import Loader
from tcnaps.episodes.sampling import Draw, draw_episode
from tcnaps.method.episode import Episode
from tcnaps.method.memory import kept_memory
from tcnaps.method.model import TransductiveCNAPS
from tcnaps.method.variants import TRAININGS
from tcnaps.training.checkpoints import checkpoint_folder, digest, finished_log, new_model, refuse_imported, save
from tcnaps.training.resuming import load_state, save_state


def meta_train(
    study: Study, training: str, device: torch.device | str = "cpu", save_every: int = 10, workers: int = 0
) -> pd.DataFrame:
    """Trains one of the six trainings, saves the best checkpoint of its validations and returns the log.

    The loss is the cross-entropy of an episode's queries, summed or averaged as the study says, averaged over the
    episodes of a step, plus for every episode the undivided penalty on the FiLM regularisers. Every training sees the
    same episodes. An interrupted call goes on from its last saved state and ends with the very same weights; where the
    checkpoint is there already, made by the same code from the same settings, nothing is trained.

    Args:
        training: a name of `TRAININGS`.
        save_every: optimiser steps between saved states.
        workers: processes that read images ahead; see `tcnaps.episodes.loading.Loader`. They change nothing else.

    Returns:
        A row a step: episode, loss (a query), train_accuracy in [0, 1], and at validations the columns of
        `summarise_validation`. The first row, of episode 0, has only these: the model before any training.
    """
    refuse_imported(study, training)
    settings, folder = study.meta_training, checkpoint_folder(study)
    sources = [open_split(study, name, "train") for name in settings.datasets]
    validation = [open_split(study, name, "valid") for name in settings.validation_datasets]
    torch.manual_seed(study.seed)
    model = new_model(study, training).to(device).train()
    learned = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.Adam(learned, settings.learning_rate)
    backbone_digest = digest(folder / "backbone.safetensors")
    inputs = [backbone_digest, *(source.digest for source in sources + validation)]
    key = job_key(inputs, study, "meta_training", training=training)
    if (log := finished_log(folder / f"{training}.safetensors", key)) is not None:
        return pd.DataFrame(log)
    state_path = folder / f"{training}.state.pt"
    state = load_state(state_path, key) or {"step": 0, "log": [], "best": {}, "best_weights": model.adaptation_state()}
    if "weights" in state:
        model.load_state_dict(state["weights"], strict=False)  # the backbone's are not in it: they never change
        optimiser.load_state_dict(state["optimiser"])
    log, best, best_weights = state["log"], state["best"], state["best_weights"]

    def validated() -> tuple[dict[str, float], dict[str, float]]:
        accuracies = {s.dataset: validate(model, s, study, loader) for s in validation}
        return {name: float(values.mean()) for name, values in accuracies.items()}, summarise_validation(accuracies)

    n_steps = math.ceil(settings.episodes / settings.episodes_per_step)
    validate_every = max(1, settings.validate_every // settings.episodes_per_step)
    numbers = range(state["step"] * settings.episodes_per_step, n_steps * settings.episodes_per_step)
    bar = tqdm(total=n_steps, initial=state["step"], desc=f"meta-training {training}", unit="step")
    with Loader(workers, device) as loader, kept_memory():
        if not log:  # to compare with, never to be kept: the unadapted backbone, nearly
            log.append({"episode": 0, **validated()[1]})
        episodes = loader.episodes(training_task(sources, study, index) for index in numbers)
        for step in range(state["step"], n_steps):
            row = {"episode": (step + 1) * settings.episodes_per_step, **_take_step(model, optimiser, study, episodes)}
            if (step + 1) % validate_every == 0 or step + 1 == n_steps:
                accuracies, summary = validated()
                row |= summary
                if is_better(accuracies, best, settings.keep_best_by):
                    best = accuracies
                    best_weights = {name: value.detach().clone() for name, value in model.adaptation_state().items()}
                bar.set_postfix(valid=f"{row['valid_accuracy']:.3f}", refresh=False)
            log.append(row)
            bar.update()
            if (step + 1) % save_every == 0 and step + 1 < n_steps:
                save_state(
                    state_path,
                    key,
                    {
                        "weights": model.adaptation_state(),
                        "optimiser": optimiser.state_dict(),
                        "step": step + 1,
                        "log": log,
                        "best": best,
                        "best_weights": best_weights,
                    },
                )
    bar.close()
    save(
        folder / f"{training}.safetensors",
        best_weights,
        {
            "study": study.name,
            "training": training,
            "seed": study.seed,
            "backbone": backbone_digest,
            "valid_accuracy": float(np.mean(list(best.values()))),
            "meta_training": settings.model_dump(),
            "key": key,
            "log": log,
        },
    )
    state_path.unlink(missing_ok=True)
    return pd.DataFrame(log)


def episode_loss(model: TransductiveCNAPS, episode: Episode, study: Study) -> tuple[Float[Tensor, ""], float]:
    """Cross-entropy of the queries, and the share of them labelled correctly.

    The "+" trainings take it after refinement by the stopping rule, so that gradients pass through the loop; all
    others from the support set's statistics alone.
    """
    if TRAININGS[model.training_name].refinement_in_training:
        logits = model.classify(episode, study.refinement.minimum_steps, study.refinement.maximum_steps).logits
    else:
        logits = model(episode, steps=0)[0]
    accuracy = (logits.argmax(1) == episode.query_labels).float().mean().item()
    loss = F.cross_entropy(logits, episode.query_labels, reduction=study.meta_training.query_loss)
    return loss, accuracy


@torch.no_grad()
def validate(
    model: TransductiveCNAPS, source: ImageSource, study: Study, loader: Loader
) -> Float[np.ndarray, "n_episodes"]:
    """Accuracies in [0, 1] on the validation episodes of one dataset."""
    model.eval()
    settings, limits = study.meta_training, (0, 0)
    if settings.validate_refined:
        limits = (study.refinement.minimum_steps, study.refinement.maximum_steps)
    protocol = settings.validation_protocol or settings.protocol
    numbers = range(settings.validation_episodes)
    accuracies = []
    for episode in loader.episodes((source, draw_episode(source, protocol, study.seed, index)) for index in numbers):
        logits = model.classify(episode, *limits).logits
        accuracies.append((logits.argmax(1) == episode.query_labels).float().mean().item())
    model.train()
    return np.array(accuracies)


def summarise_validation(accuracies: dict[str, Float[np.ndarray, "n_episodes"]]) -> dict[str, float]:
    """valid_accuracy (the mean over datasets), its 95% half-width valid_interval, and valid_accuracy_<dataset>."""
    variance = sum(values.var() / len(values) for values in accuracies.values()) / len(accuracies) ** 2
    means = {f"valid_accuracy_{dataset}": float(values.mean()) for dataset, values in accuracies.items()}
    return {
        "valid_accuracy": float(np.mean(list(means.values()))),
        "valid_interval": 1.96 * float(np.sqrt(variance)),
        **means,
    }


def is_better(new: dict[str, float], best: dict[str, float], rule: str) -> bool:
    """Whether a checkpoint's validation accuracies, by dataset, beat those of the best one so far (empty = none yet).

    Args:
        rule: "mean accuracy", or "half of the datasets", the released code's: as many datasets improved as not.
    """
    if rule == "mean accuracy" or not best:
        return not best or float(np.mean(list(new.values()))) > float(np.mean(list(best.values())))
    return sum(new[name] > best[name] for name in new) >= math.ceil(len(new) / 2)


def training_task(sources: list[ImageSource], study: Study, index: int) -> tuple[ImageSource, Draw]:
    """Episode `index` of meta-training: a dataset drawn uniformly, then an episode of its training classes."""
    source = sources[np.random.default_rng([study.seed, 2, index]).integers(len(sources))]
    return source, draw_episode(source, study.meta_training.protocol, study.seed, index)


def _take_step(model, optimiser, study, episodes: Iterator[Episode]) -> dict:
    settings = study.meta_training
    losses, accuracies = [], []
    optimiser.zero_grad(set_to_none=True)
    for episode in islice(episodes, settings.episodes_per_step):
        loss, accuracy = episode_loss(model, episode, study)
        if not loss.isfinite():
            raise FloatingPointError(
                f"the loss of episode {episode.draw.index} ({episode.draw.dataset}) is {loss.item()}; "
                "lower meta_training.learning_rate"
            )
        (loss / settings.episodes_per_step + settings.film_penalty * model.film_generator.penalty()).backward()
        losses.append(loss.item() / (len(episode.query_labels) if settings.query_loss == "sum" else 1))
        accuracies.append(accuracy)
    optimiser.step()
    return {"loss": float(np.mean(losses)), "train_accuracy": float(np.mean(accuracies))}
