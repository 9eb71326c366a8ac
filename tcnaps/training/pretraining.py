"""Supervised training of the backbone as a plain image classifier over all training classes (appendix A.3)."""

import math
from collections.abc import Iterable, Iterator
from itertools import tee
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tcnaps.config import Study
from tcnaps.config.dependencies import job_key
from tcnaps.config.settings import Pretraining
from tcnaps.data import open_split
from tcnaps.data.image_source import ImageSource
from tcnaps.episodes.loading import read_batches
from tcnaps.method.backbone import FEATURES, Backbone
from tcnaps.method.episode import to_pixel_range
from tcnaps.training.checkpoints import backbone_file, finished_log, refuse_imported, save
from tcnaps.training.determinism import deterministic
from tcnaps.training.measures import accuracy_and_confidence, gradient_norm, half_cosine
from tcnaps.training.processes import ALONE, Team, run_together
from tcnaps.training.resuming import Resumable
from tcnaps.training.watching import Diverged, Watch

SHIFT = 1 / 8  # random crops move an image by up to this share of its size
RISE = 0.25  # share of a one-cycle training in which the learning rate rises
EVALUATION_BATCH = 512


def pretraining_steps(
    network: "Classifier",
    study: Study,
    images: "ImageTable",
    optimiser: torch.optim.Optimizer,
    first: int = 0,
    workers: int = 0,
    team: Team = ALONE,
) -> Iterator[dict]:
    """Pretraining itself: one optimiser step for every batch of every epoch, from batch `first` on.

    Of several processes, each normalises (batch-norm) its part of the batch with that part's own statistics, as
    PyTorch's DistributedDataParallel does; the running averages of all are averaged after every step.

    Yields:
        One row per batch, of the whole batch: epoch and batch, both from 1, learning_rate, loss, train_accuracy and
        confidence (the mean probability of the predicted class) in [0, 1], and gradient_norm.

    Raises:
        Diverged: the loss is not finite.
    """
    settings, n_batches = study.pretraining, images.n_batches(study.pretraining.batch_size)
    numbers = batch_numbers(images, study, first)
    batches = images.batches(numbers, workers, next(network.parameters()).device)
    own = slice(team.rank, None, team.size)
    for step, (pixels, labels) in enumerate(batches, first):
        epoch, batch = divmod(step, n_batches)
        pixels = shrink(pixels, settings.size_in_epoch(epoch, study.image_size))
        pixels = augment(pixels, settings, np.random.default_rng([study.backbone_seed, epoch, batch]))
        rate = learning_rate(settings, epoch, batch, n_batches)
        for group in optimiser.param_groups:
            group["lr"] = rate
        with torch.autocast(pixels.device.type, torch.bfloat16, enabled=study.precision == "bfloat16"):
            logits = network(pixels[own]).float()
        part = len(logits) / len(pixels)
        loss = F.cross_entropy(logits, labels[own], label_smoothing=settings.label_smoothing) * part
        if not loss.isfinite():
            where = f"step {step + 1} (epoch {epoch + 1}, batch {batch + 1})"
            raise Diverged("pretraining", where, f"the loss is {loss.item()}", "pretraining")
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        right, confidence = accuracy_and_confidence(logits, labels[own])
        found = team.gather([(loss.item(), right * part, confidence * part)])
        team.add_up_gradients(network)
        norm = gradient_norm(network)
        optimiser.step()
        team.average(buffer for buffer in network.buffers() if buffer.is_floating_point())
        row = {"epoch": epoch + 1, "batch": batch + 1, "learning_rate": rate, "gradient_norm": norm}
        yield row | dict(zip(("loss", "train_accuracy", "confidence"), map(sum, zip(*found))))


@deterministic
def pretrain(
    study: Study,
    device: torch.device | str = "cpu",
    save_every: int = 100,
    workers: int = 0,
    processes: int = 1,
    team: Team = ALONE,
) -> pd.DataFrame:
    """Trains the study's backbone, saves it and returns the log.

    An interrupted call goes on from its last saved state and ends with the very same weights; where the checkpoint is
    there already, made by the same code from the same settings, nothing is trained.

    Args:
        save_every: batches between saved states.
        workers: processes that read images ahead; see `tcnaps.episodes.loading`. They change nothing else.
        processes: that share every batch; see `tcnaps.training.processes`. The weights depend on their number, as
            batch-norm sees less at once (`pretraining_steps`).
        team: set by `run_together`, which calls this function in every process.

    Returns:
        One row per epoch: epoch, learning_rate (at its end), loss, train_accuracy, valid_accuracy (on n_valid images
        held out of the same classes). Accuracies are in [0, 1].

    Raises:
        CheckpointError: the study imports its backbone, a saved state is damaged, or the weights are not finite.
        Diverged: the loss is not finite, or stays above its start; see `Watch`.
        ProcessError: one of several processes has ended early.
        UserError: there are more processes than images in a batch, or than GPUs.
        ValueError: a batch is larger than the training set.
    """
    refuse_imported(study, "backbone")
    settings, path = study.pretraining, backbone_file(study)
    sources = [open_split(study, name, "train") for name in settings.datasets]
    key = job_key([s.digest for s in sources], study, "pretraining")
    if (log := finished_log(path, key)) is not None:
        Resumable(path, key, {}, {}).remove()  # if it was killed just before
        return pd.DataFrame(log)
    if processes != 1:
        options = {"device": device, "limit": ("pretraining.batch_size", settings.batch_size)}
        return run_together(processes, pretrain, study, save_every=save_every, workers=workers, **options)
    images = ImageTable(sources, settings.valid_fraction, study.backbone_seed)
    images.n_batches(settings.batch_size)  # raises where a batch is larger than the data
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(study.backbone_seed)
        network = Classifier(images.n_classes, study.pixel_range).to(device)
    optimiser = torch.optim.SGD(
        network.parameters(), settings.learning_rate, settings.momentum, weight_decay=settings.weight_decay
    )
    progress = {"log": [], "rows": [], "watched": {}}  # log: per epoch; rows: per batch of the epoch that is not over
    parts = {"network": network, "optimiser": optimiser}
    state = Resumable(path, key, parts, progress, save_every, team.leads)
    with team.resuming(state):
        _train(network, optimiser, study, images, state, path, workers, team)
        header = {name: getattr(study, name) for name in ("image_size", "precision", "pixel_range")}
        header |= {"seed": study.backbone_seed, "study": study.name, "pretraining": settings.model_dump()}
        if team.leads:
            save(path, network.backbone.state_dict(), header | {"key": key, "log": progress["log"]})
    return pd.DataFrame(progress["log"])


def _train(
    network: "Classifier",
    optimiser: torch.optim.Optimizer,
    study: Study,
    images: "ImageTable",
    state: Resumable,
    path: Path,
    workers: int,
    team: Team,
) -> None:
    """The steps that are left, each watched, with saved states and, at the end of an epoch, the held-out accuracy."""
    settings, log, rows = study.pretraining, state.progress["log"], state.progress["rows"]
    n_batches = images.n_batches(settings.batch_size)
    first, n_steps = len(log) * n_batches + len(rows), settings.epochs * n_batches
    per_step, memory = {"images": settings.batch_size}, state.progress["watched"]
    device = next(network.parameters()).device
    with Watch(path, "pretraining", "pretraining", n_steps, first, per_step, memory, device, team.leads) as watch:
        for row in pretraining_steps(network, study, images, optimiser, first, workers, team):
            rows.append(row)
            if len(rows) == n_batches:
                means = pd.DataFrame(rows)[["loss", "train_accuracy"]].mean().to_dict()
                end = {"epoch": row["epoch"], "learning_rate": row["learning_rate"]}
                log.append(end | means | held_out_accuracy(network, images, workers, team))
                rows.clear()
                row = row | {"valid_accuracy": log[-1]["valid_accuracy"]}
            state.after_step(good=watch.log(row))


def batch_numbers(images: "ImageTable", study: Study, first: int = 0) -> Iterator[Int[np.ndarray, "_"]]:
    """Numbers of the images of each batch, from batch `first` on. Every epoch has an order of its own."""
    size, n_batches = study.pretraining.batch_size, images.n_batches(study.pretraining.batch_size)
    for step in range(first, study.pretraining.epochs * n_batches):
        epoch, batch = divmod(step, n_batches)
        if batch == 0 or step == first:
            order = np.random.default_rng([study.backbone_seed, epoch]).permutation(images.train)
        yield order[batch * size : (batch + 1) * size]


def learning_rate(settings: Pretraining, epoch: int, batch: int, n_batches: int) -> float:
    """Of one batch: divided by 10 every so many epochs, or one cycle with a linear rise and a cosine descent to 0."""
    if settings.schedule == "step":
        return settings.learning_rate / 10 ** (epoch // settings.learning_rate_drop_every)
    progress = (epoch + (batch + 1) / n_batches) / settings.epochs
    if progress < RISE:
        return settings.learning_rate * progress / RISE
    return settings.learning_rate * half_cosine((progress - RISE) / (1 - RISE))


class Classifier(nn.Module):
    """The backbone with a linear layer over all training classes."""

    def __init__(self, n_classes: int, pixel_range: tuple[int, int] = (-1, 1)):
        super().__init__()
        self.pixel_range = pixel_range
        self.backbone = Backbone()
        self.classifier = nn.Linear(FEATURES, n_classes)

    def forward(self, images: Float[Tensor, "n 3 height width"]) -> Float[Tensor, "n n_classes"]:
        return self.classifier(self.backbone(to_pixel_range(images, self.pixel_range)))


class ImageTable:
    """The images of several sources under one numbering, their labels, and which are held out."""

    def __init__(self, sources: list[ImageSource], valid_fraction: float, seed: int):
        sizes = np.concatenate([source.class_sizes for source in sources])
        generator, starts = np.random.default_rng([seed, 1]), np.cumsum(sizes) - sizes
        held_out = [start + generator.permutation(n)[: round(valid_fraction * n)] for start, n in zip(starts, sizes)]
        self.sources, self.n_classes, self.labels = sources, len(sizes), np.arange(len(sizes)).repeat(sizes)
        self.valid = np.sort(np.concatenate(held_out))
        self.train = np.setdiff1d(np.arange(len(self.labels)), self.valid)

    def n_batches(self, size: int) -> int:
        """Full batches per epoch.

        Raises:
            ValueError: there is none.
        """
        if size > len(self.train):
            raise ValueError(f"pretraining.batch_size {size} exceeds the {len(self.train)} training images; lower it")
        return len(self.train) // size

    def batches(
        self, batches: Iterable[Int[np.ndarray, "_"]], workers: int = 0, device: torch.device | str = "cpu"
    ) -> Iterator[tuple[Float[Tensor, "_ 3 height width"], Int[Tensor, "_"]]]:
        """The images of each batch of numbers, scaled to [-1, 1], and their labels."""
        here, there = tee(batches)
        for numbers, pixels in zip(here, read_batches(self.sources, there, workers, device)):
            yield pixels, torch.from_numpy(self.labels[numbers]).to(device)


def shrink(pixels: Float[Tensor, "n 3 height width"], size: int) -> Float[Tensor, "n 3 size size"]:
    """Images at a smaller size; each new pixel is the mean of the pixels that it covers."""
    return pixels if pixels.shape[-1] == size else F.interpolate(pixels, size=(size, size), mode="area")


def augment(
    pixels: Float[Tensor, "n 3 height width"], settings: Pretraining, generator: np.random.Generator
) -> Float[Tensor, "n 3 height width"]:
    """Random crop, colour jitter and, where mirror images are no other class, horizontal flip; each image its own."""
    n, _, height, width = pixels.shape

    def draw(low: float, high: float) -> Tensor:
        return torch.from_numpy(generator.uniform(low, high, (n, 1, 1, 1)).astype(np.float32)).to(pixels.device)

    jitter = settings.colour_jitter
    brightness, contrast, saturation = (draw(1 - jitter, 1 + jitter) for _ in range(3))
    x = (pixels + 1) * brightness  # 0 is black here
    x = (x - x.mean((1, 2, 3), keepdim=True)) * contrast + x.mean((1, 2, 3), keepdim=True)
    grey = x.mean(1, keepdim=True)
    x = ((x - grey) * saturation + grey).clamp(0, 2) - 1
    margin = max(1, round(SHIFT * height))
    padded = F.pad(x, (margin,) * 4, mode="reflect")
    down, right = torch.from_numpy(generator.integers(0, 2 * margin + 1, (2, n))).to(pixels.device)
    rows = down[:, None] + torch.arange(height, device=pixels.device)
    columns = right[:, None] + torch.arange(width, device=pixels.device)
    if settings.horizontal_flip:
        flipped = torch.from_numpy(generator.random(n) < 0.5).to(pixels.device)
        columns = torch.where(flipped[:, None], columns.flip(1), columns)
    images = torch.arange(n, device=pixels.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[images, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


@torch.no_grad()
def held_out_accuracy(
    network: Classifier, images: ImageTable, workers: int = 0, team: Team = ALONE
) -> dict[str, float]:
    """valid_accuracy: the share of the n_valid held-out images put in their class; NaN where none are held out."""
    network.eval()
    numbers = np.array_split(images.valid, range(EVALUATION_BATCH, len(images.valid), EVALUATION_BATCH))
    numbers = team.share(numbers)
    batches = images.batches(numbers, workers, next(network.parameters()).device) if len(images.valid) else ()
    right = sum(team.gather([(network(pixels).argmax(1) == labels).sum().item() for pixels, labels in batches]))
    network.train()
    n_valid = len(images.valid)
    return {"valid_accuracy": right / n_valid if n_valid else math.nan, "n_valid": n_valid}
