"""Supervised training of the backbone as a plain image classifier over all training classes (appendix A.3)."""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Optimizer

from tcnaps.config import Study
from tcnaps.config.dependencies import job_key
from tcnaps.config.settings import Pretraining
from tcnaps.data import ImageSource, open_split
from tcnaps.episodes.loading import read_images
from tcnaps.method.backbone import FEATURES, Backbone
from tcnaps.method.episode import to_pixel_range
from tcnaps.training.checkpoints import backbone_file, finished_log, refuse_imported, save
from tcnaps.training.processes import add_up_gradients, average_buffers, gather, rank, run_together, share, size
from tcnaps.training.resuming import Resumable, accuracy_and_confidence, run_steps

SHIFT = 1 / 8  # random crops move an image by up to this share of its size
RISE = 0.25  # share of a one-cycle training in which the learning rate rises
EVALUATION_BATCH = 512  # held-out images


def pretraining_steps(
    network: "Classifier", study: Study, images: "ImageTable", optimiser: Optimizer, first: int = 0
) -> Iterator[dict]:
    """Pretraining itself: one optimiser step and row for every batch of every epoch, starting with batch `first`.

    Several processes share each batch; each normalises its part by itself, and running averages are averaged.
    """
    settings, n_batches = study.pretraining, images.n_batches(study.pretraining.batch_size)
    device = next(network.parameters()).device
    part = slice(rank(), None, size())  # this process's images of a batch
    for step in range(first, settings.epochs * n_batches):
        epoch, batch = divmod(step, n_batches)
        if batch == 0 or step == first:  # every epoch has its own order
            order = np.random.default_rng([study.backbone_seed, epoch]).permutation(images.train)
        pixels, labels = images.batch(order[batch * settings.batch_size :][: settings.batch_size], device)
        pixels = shrink(pixels, settings.size_in_epoch(epoch, study.image_size))
        pixels = augment(pixels, settings, np.random.default_rng([study.backbone_seed, epoch, batch]))
        rate = learning_rate(settings, epoch, batch, n_batches)
        for group in optimiser.param_groups:
            group["lr"] = rate

        with torch.autocast(pixels.device.type, torch.bfloat16, enabled=study.precision == "bfloat16"):
            logits = network(pixels[part]).float()
        weight = len(logits) / len(pixels)
        loss = F.cross_entropy(logits, labels[part], label_smoothing=settings.label_smoothing) * weight
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        add_up_gradients(network)
        optimiser.step()
        average_buffers(network)

        accuracy, confidence = accuracy_and_confidence(logits, labels[part])
        of_parts = gather([(loss.item(), accuracy * weight, confidence * weight)])
        sums = dict(zip(("loss", "train_accuracy", "confidence"), map(sum, zip(*of_parts))))
        yield {"epoch": epoch + 1, "batch": batch + 1, "learning_rate": rate, **sums}


def pretrain(
    study: Study, device: torch.device | str = "cpu", save_every: int = 100, processes: int = 1
) -> pd.DataFrame:
    """Trains the study's backbone, saves it and returns the log: one row per epoch, with accuracies in [0, 1].

    An interrupted call goes on from its last saved state and ends with the very same weights. The state is written
    every `save_every` batches, or less often where that would take more than a twentieth of the time. A checkpoint of
    the same code and settings is kept. The weights depend on the number of `processes` (`pretraining_steps`).
    """
    refuse_imported(study, "backbone")
    settings, path = study.pretraining, backbone_file(study)
    sources = [open_split(study, name, "train") for name in settings.datasets]
    key = job_key([source.digest for source in sources], study, "pretraining")
    if processes != 1 and finished_log(path, key) is None:
        run_together(processes, pretrain, study, device, "pretraining.batch_size", save_every=save_every)
    if (log := finished_log(path, key)) is not None:
        return pd.DataFrame(log)
    images = ImageTable(sources, settings.valid_fraction, study.backbone_seed)
    n_batches = images.n_batches(settings.batch_size)
    with torch.random.fork_rng(devices=[]):  # PyTorch's global generator stays as it was
        torch.manual_seed(study.backbone_seed)
        network = Classifier(images.n_classes, study.pixel_range).to(device, memory_format=torch.channels_last)
    optimiser = SGD(network.parameters(), settings.learning_rate, settings.momentum, weight_decay=settings.weight_decay)
    progress = {"log": [], "rows": []}  # log: per epoch; rows: per batch of the unfinished epoch

    def end_of_step(row: dict) -> dict:
        progress["rows"].append(row)
        if len(progress["rows"]) < n_batches:
            return row
        means = pd.DataFrame(progress["rows"])[["loss", "train_accuracy"]].mean().to_dict()
        held_out = held_out_accuracy(network, images)
        epoch = {"epoch": row["epoch"], "learning_rate": row["learning_rate"], **means, **held_out}
        progress["log"].append(epoch)
        progress["rows"].clear()
        return row | {"valid_accuracy": epoch["valid_accuracy"]}

    def steps(first: int) -> Iterator[dict]:
        return pretraining_steps(network, study, images, optimiser, first)

    state = Resumable(path, key, {"network": network, "optimiser": optimiser}, progress)
    run_steps(state, save_every, steps, end_of_step, "pretraining", settings.epochs * n_batches)
    header = {name: getattr(study, name) for name in ("image_size", "precision", "pixel_range")}
    header |= {"seed": study.backbone_seed, "study": study.name, "pretraining": settings.model_dump()}
    if rank() == 0:
        save(path, network.backbone.state_dict(), header | {"key": key, "log": progress["log"]})
    return pd.DataFrame(finished_log(path, key))


def learning_rate(settings: Pretraining, epoch: int, batch: int, n_batches: int) -> float:
    """Learning rate of one batch: step decay, or one cycle (a linear rise, then cosine decay to 0)."""
    if settings.schedule == "step":
        return settings.learning_rate / 10 ** (epoch // settings.learning_rate_drop_every)
    progress = (epoch + (batch + 1) / n_batches) / settings.epochs
    if progress < RISE:
        return settings.learning_rate * progress / RISE
    fall = (progress - RISE) / (1 - RISE)
    return settings.learning_rate * (1 + math.cos(math.pi * fall)) / 2


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
    """The images of several sources under one numbering, and their classes, as `labels`; `valid` ones are held out."""

    def __init__(self, sources: list[ImageSource], valid_fraction: float, seed: int):
        sizes = np.concatenate([source.class_sizes for source in sources])
        starts = np.cumsum(sizes) - sizes
        generator = np.random.default_rng([seed, 1])
        held_out = [start + generator.permutation(n)[: round(valid_fraction * n)] for start, n in zip(starts, sizes)]
        self.sources, self.n_classes = sources, len(sizes)
        self.labels = np.arange(len(sizes)).repeat(sizes)
        self.valid = np.sort(np.concatenate(held_out))
        self.train = np.setdiff1d(np.arange(len(self.labels)), self.valid)

    def n_batches(self, size: int) -> int:
        """Full batches per epoch; a ValueError if there is none."""
        if size > len(self.train):
            raise ValueError(f"pretraining.batch_size {size} exceeds the {len(self.train)} training images; lower it")
        return len(self.train) // size

    def batch(
        self, numbers: Int[np.ndarray, "n"], device: torch.device | str = "cpu"
    ) -> tuple[Float[Tensor, "n 3 height width"], Int[Tensor, "n"]]:
        """The images with these numbers, scaled to [-1, 1], and their labels."""
        return read_images(self.sources, numbers, device), torch.from_numpy(self.labels[numbers]).to(device)


def shrink(pixels: Float[Tensor, "n 3 height width"], size: int) -> Float[Tensor, "n 3 size size"]:
    """Images at a smaller size; each new pixel is the mean of the pixels it covers."""
    return pixels if pixels.shape[-1] == size else F.interpolate(pixels, size=(size, size), mode="area")


def augment(
    pixels: Float[Tensor, "n 3 height width"], settings: Pretraining, generator: np.random.Generator
) -> Float[Tensor, "n 3 height width"]:
    """A random crop, colour jitter and, if the study allows it, a random horizontal flip for each image."""
    n, _, height, width = pixels.shape
    jitter = settings.colour_jitter
    factors = generator.uniform(1 - jitter, 1 + jitter, (3, n, 1, 1, 1)).astype(np.float32)
    brightness, contrast, saturation = torch.from_numpy(factors).to(pixels.device)
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
def held_out_accuracy(network: Classifier, images: ImageTable) -> dict[str, float]:
    """valid_accuracy, the share of the n_valid held-out images put in their class; NaN if none are held out."""
    n_valid = len(images.valid)
    network.eval()
    correct = []
    for start in share(range(0, n_valid, EVALUATION_BATCH)):
        pixels, labels = images.batch(images.valid[start : start + EVALUATION_BATCH], next(network.parameters()).device)
        correct.append((network(pixels).argmax(1) == labels).sum().item())
    network.train()
    return {"valid_accuracy": sum(gather(correct)) / n_valid if n_valid else math.nan, "n_valid": n_valid}
