"""Supervised training of the backbone as a plain image classifier over all training classes (appendix A.3)."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm.auto import tqdm

from tcnaps.config import Study
from tcnaps.config.dependencies import job_key
from tcnaps.config.settings import Pretraining
from tcnaps.datasets import open_split
from tcnaps.datasets.image_source import ImageSource
from tcnaps.episodes.loading import Loader, Part, Request
from tcnaps.method.backbone import FEATURES, Backbone
from tcnaps.method.episode import in_range
from tcnaps.method.memory import kept_memory
from tcnaps.training.checkpoints import checkpoint_folder, finished_log, refuse_imported, save
from tcnaps.training.resuming import load_state, save_state

SHIFT = 1 / 8  # random crops move an image by up to this share of its size
RISE = 0.25  # share of a one-cycle training in which the learning rate rises
EVALUATION_BATCH = 512


def pretrain(study: Study, device: torch.device | str = "cpu", save_every: int = 100, workers: int = 0) -> pd.DataFrame:
    """Trains the study's backbone, saves it and returns what is known of every epoch.

    An interrupted call goes on from its last saved state and ends with the very same weights; where the checkpoint is
    there already, made by the same code from the same settings, nothing is trained.

    Args:
        save_every: batches between saved states.
        workers: processes that read images ahead; see `tcnaps.episodes.loading.Loader`. They change nothing else.

    Returns:
        A row an epoch: epoch, learning_rate (at its end), loss, train_accuracy, valid_accuracy (on n_valid images
        held out of the same classes). Accuracies are in [0, 1].
    """
    refuse_imported(study, "backbone")
    settings, folder = study.pretraining, checkpoint_folder(study)
    sources = [open_split(study, name, "train") for name in settings.datasets]
    images = ImageTable(sources, settings.valid_fraction, study.seed)
    torch.manual_seed(study.seed)
    network = Classifier(images.n_classes, study.pixel_range).to(device)
    optimiser = torch.optim.SGD(
        network.parameters(), settings.learning_rate, settings.momentum, weight_decay=settings.weight_decay
    )
    key = job_key([source.digest for source in sources], study, "pretraining")
    if (log := finished_log(folder / "backbone.safetensors", key)) is not None:
        return pd.DataFrame(log)
    state_path = folder / "backbone.state.pt"
    state = load_state(state_path, key) or {"epoch": 0, "batch": 0, "sums": [0.0, 0, 0], "log": []}
    if "network" in state:
        network.load_state_dict(state["network"])
        optimiser.load_state_dict(state["optimiser"])
    log, n_batches = state["log"], len(images.train) // settings.batch_size
    if n_batches == 0:
        raise ValueError(
            f"pretraining.batch_size {settings.batch_size} exceeds the {len(images.train)} training images; lower it"
        )
    bar = tqdm(
        total=settings.epochs * n_batches,
        initial=state["epoch"] * n_batches + state["batch"],
        desc="pretraining",
        unit="batch",
    )
    with Loader(workers, device) as loader, kept_memory():
        for epoch in range(state["epoch"], settings.epochs):
            order = np.random.default_rng([study.seed, epoch]).permutation(images.train)
            first, sums = (state["batch"], state["sums"]) if epoch == state["epoch"] else (0, [0.0, 0, 0])
            numbers = list(order[: n_batches * settings.batch_size].reshape(n_batches, -1)[first:])
            network.train()
            for batch, (pixels, labels) in enumerate(images.batches(numbers, loader), first):
                pixels = augment(pixels, settings, np.random.default_rng([study.seed, epoch, batch]))
                rate = learning_rate(settings, epoch, batch, n_batches)
                for group in optimiser.param_groups:
                    group["lr"] = rate
                with torch.autocast(pixels.device.type, torch.bfloat16, enabled=study.precision == "bfloat16"):
                    logits = network(pixels).float()
                loss = F.cross_entropy(logits, labels)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
                sums = [
                    sums[0] + loss.item() * len(labels),
                    sums[1] + (logits.argmax(1) == labels).sum().item(),
                    sums[2] + len(labels),
                ]
                bar.update()
                bar.set_postfix(loss=f"{sums[0] / sums[2]:.3f}", refresh=False)
                if (batch + 1) % save_every == 0 and batch + 1 < n_batches:
                    save_state(state_path, key, _state(network, optimiser, epoch, batch + 1, sums, log))
            log.append(
                {
                    "epoch": epoch + 1,
                    "learning_rate": rate,
                    "loss": sums[0] / sums[2],
                    "train_accuracy": sums[1] / sums[2],
                    "valid_accuracy": held_out_accuracy(network, images, loader),
                    "n_valid": len(images.valid),
                }
            )
            save_state(state_path, key, _state(network, optimiser, epoch + 1, 0, [0.0, 0, 0], log))
    bar.close()
    save(
        folder / "backbone.safetensors",
        network.backbone.state_dict(),
        {
            "study": study.name,
            "seed": study.seed,
            "image_size": study.image_size,
            "pixel_range": study.pixel_range,
            "pretraining": settings.model_dump(),
            "key": key,
            "log": log,
        },
    )
    state_path.unlink(missing_ok=True)
    return pd.DataFrame(log)


def learning_rate(settings: Pretraining, epoch: int, batch: int, n_batches: int) -> float:
    """Of one batch: divided by 10 every so many epochs, or one cycle with a linear rise and a cosine descent to 0."""
    if settings.schedule == "step":
        return settings.learning_rate / 10 ** (epoch // settings.learning_rate_drop_every)
    progress = (epoch + (batch + 1) / n_batches) / settings.epochs
    if progress < RISE:
        return settings.learning_rate * progress / RISE
    return settings.learning_rate * (1 + math.cos(math.pi * (progress - RISE) / (1 - RISE))) / 2


class Classifier(nn.Module):
    """The backbone with a linear layer over all training classes."""

    def __init__(self, n_classes: int, pixel_range: tuple[int, int] = (-1, 1)):
        super().__init__()
        self.pixel_range = pixel_range
        self.backbone = Backbone()
        self.classifier = nn.Linear(FEATURES, n_classes)

    def forward(self, images: Float[Tensor, "n 3 height width"]) -> Float[Tensor, "n n_classes"]:
        return self.classifier(self.backbone(in_range(images, self.pixel_range)))


class ImageTable:
    """The images of several sources under one numbering, their labels, and which are held out."""

    def __init__(self, sources: list[ImageSource], valid_fraction: float, seed: int):
        self.sources = sources
        self.starts = np.cumsum([0] + [len(source.images) for source in sources])
        labels, held_out, n_classes = [], [], 0
        generator = np.random.default_rng([seed, 1])
        for source in sources:
            labels.append(n_classes + np.arange(source.n_classes).repeat(source.class_sizes))
            n_classes += source.n_classes
            for size in source.class_sizes:
                mask = np.zeros(size, dtype=bool)
                mask[generator.permutation(size)[: round(valid_fraction * size)]] = True
                held_out.append(mask)
        self.labels, self.n_classes = np.concatenate(labels), n_classes
        mask = np.concatenate(held_out)
        self.train, self.valid = np.flatnonzero(~mask), np.flatnonzero(mask)

    def batches(
        self, numbers: Sequence[Int[np.ndarray, "n"]], loader: Loader
    ) -> Iterator[tuple[Float[Tensor, "n 3 height width"], Int[Tensor, "n"]]]:
        """The images of these numbers, scaled to [-1, 1], and their labels: a batch for each array of numbers."""
        for wanted, pixels in zip(numbers, loader.read(map(self._request, numbers))):
            yield pixels, torch.from_numpy(self.labels[wanted]).to(loader.device)

    def _request(self, numbers: Int[np.ndarray, "n"]) -> Request:
        which = np.searchsorted(self.starts, numbers, side="right") - 1
        parts = []
        for s in np.unique(which):
            places = np.flatnonzero(which == s)
            parts.append(Part(self.sources[s].images, numbers[places] - self.starts[s], places))
        names = ", ".join(self.sources[s].dataset for s in np.unique(which))
        return Request(f"{len(numbers)} images of {names}", tuple(parts))


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
def held_out_accuracy(network: Classifier, images: ImageTable, loader: Loader) -> float:
    """Share of the held-out images put in their class, in [0, 1]; NaN where none are held out."""
    network.eval()
    right = 0
    starts = range(0, len(images.valid), EVALUATION_BATCH)
    numbers = [images.valid[start : start + EVALUATION_BATCH] for start in starts]
    for pixels, labels in images.batches(numbers, loader):
        right += (network(pixels).argmax(1) == labels).sum().item()
    return right / len(images.valid) if len(images.valid) else float("nan")


def _state(network, optimiser, epoch, batch, sums, log) -> dict:
    return {
        "network": network.state_dict(),
        "optimiser": optimiser.state_dict(),
        "epoch": epoch,
        "batch": batch,
        "sums": sums,
        "log": log,
    }
