"""A user's images → features, by a study's network, one of torchvision or one of timm.

A study's network is adapted to the labelled images and some of the others first (FiLM), as in an episode.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm.auto import tqdm

from tcnaps.config import FixedProtocol, Study, UserError, load_study
from tcnaps.config.errors import nearest
from tcnaps.config.settings import Resampling
from tcnaps.data.decoding import square, to_rgb
from tcnaps.data.image_source import DatasetError, ImageSource
from tcnaps.method.episode import Episode, scale_pixels
from tcnaps.method.variants import VARIANTS
from tcnaps_suite.experiments.comparison import feature_table
from tcnaps_suite.workflow.requirements import check_protocol, open_usable

AT_ONCE = 64  # images that go through a network together
TO_ADAPT = 200  # unlabelled images that a study's network is adapted to; the paper's episodes have as many at most


@dataclass(frozen=True)
class Network:
    """Images → features.

    Attributes:
        transform: one RGB image → what the network takes of it.
        adapted: (labelled images, their classes, unlabelled images) → the function from a batch to its features; None
            where there is no adaptation.
        features: from a batch to its features, without adaptation.
    """

    transform: Callable[[Image.Image], Tensor]
    features: Callable[[Tensor], Tensor] | None = None
    adapted: Callable[[Tensor, Tensor, Tensor], Callable[[Tensor], Tensor]] | None = None


def open_network(name: str, device: torch.device | str = "cpu", pretrained: bool = True) -> Network:
    """A network by its name: study:FILE.yaml, torchvision:NAME or timm:NAME.

    Args:
        pretrained: False leaves torchvision's and timm's weights at random; for tests.

    Raises:
        UserError: there is no such network, its package is missing, or its weights can't be had.
    """
    source, _, of_source = name.partition(":")
    if source not in OPEN or not of_source:
        raise UserError(f"There is no backbone '{name}'; say study:FILE.yaml, torchvision:NAME or timm:NAME.")
    try:
        return OPEN[source](of_source, device, pretrained)
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"The weights of '{name}' can't be downloaded ({error}). Without internet, use a study's network "
            "(--backbone study:configs/miniature.yaml) or features from elsewhere (--features)."
        ) from error


@torch.inference_mode()
def embed(
    files: Sequence[Path], codes: np.ndarray, network: Network, device: torch.device | str = "cpu", workers: int = 0
) -> tuple[np.ndarray, dict[int, str]]:
    """Features of the files, (n, d), nan where a file can't be read; and the numbers of such files, with the reasons.

    Args:
        codes: each file's class, numbered from 0, or -1 where it has no label.
        workers: processes that read images ahead.
    """
    extract = network.features
    if network.adapted is not None:
        labelled, others = np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0)
        others = others[np.unique(np.linspace(0, len(others) - 1, TO_ADAPT).astype(int))]
        support, query = (_together(files, rows, network, workers) for rows in (labelled, others))
        classes = np.unique(codes[support[0]], return_inverse=True)[1]  # a class may have no image that can be read
        extract = network.adapted(support[1].to(device), torch.from_numpy(classes).to(device), query[1].to(device))
    found, unreadable = {}, {}
    with tqdm(total=len(files), desc="features", unit="image") as bar:
        for batch in _read(files, range(len(files)), network, workers):
            unreadable |= {row: image for row, image in batch if isinstance(image, str)}
            read = {row: image for row, image in batch if row not in unreadable}
            if read:
                images = torch.stack(list(read.values())).to(device)
                found |= zip(read, extract(images).flatten(1).float().cpu().numpy())
            bar.update(len(batch))
    features = np.full((len(files), len(next(iter(found.values()), ()))), np.nan, np.float32)
    for row, of_image in found.items():
        features[row] = of_image
    return features, unreadable


@torch.inference_mode()
def embed_split(source: ImageSource, network: Network, device: torch.device | str = "cpu") -> ImageSource:
    """The split with the features of its images, (n, d), in their place. The network is not adapted.

    Raises:
        UserError: the network is a study's, which has no features without an episode.
    """
    if network.features is None:
        raise UserError("A study's network adapts itself to each episode: use it by the name 'study'.")
    found = []
    for images in tqdm(np.array_split(source.images, -(-len(source.images) // AT_ONCE)), desc=source.dataset):
        batch = torch.stack([network.transform(Image.fromarray(image)) for image in images])
        found.append(network.features(batch.to(device)).flatten(1).float().cpu().numpy())
    return replace(source, images=np.concatenate(found))


def feature_sources(
    name: str, study: Study, protocol: FixedProtocol, device: torch.device | str = "cpu", split: str = "test"
) -> tuple[list[ImageSource], list[str]]:
    """What episodes of features are drawn from: a split of the study's datasets, or a file.

    Args:
        name: "study", torchvision:NAME, timm:NAME or a file .npz of `features` and `labels`.

    Returns:
        Sources of images for "study", else of features; and why some datasets were left out.

    Raises:
        UserError: there is no such network or file, or no dataset suits the protocol.
    """
    if name.endswith(".npz"):
        table = feature_table(name)
        check_protocol(table, protocol)
        return [table], []
    sources, left_out = open_usable(study, study.tested_on(VARIANTS["Transductive"].training), split, protocol)
    if name != "study":
        network = open_network(name, device)
        sources = [embed_split(source, network, device) for source in sources]
    return sources, left_out


class _Images(torch.utils.data.Dataset):
    """Numbers of files and the files as the network takes them, or the reason why one can't be read."""

    def __init__(self, files: Sequence[Path], transform: Callable[[Image.Image], Tensor]):
        self.files, self.transform = files, transform

    def __getitem__(self, row: int) -> tuple[int, Tensor | str]:
        try:
            return row, self.transform(to_rgb(self.files[row].read_bytes(), fast=False, orient=True))
        except (DatasetError, OSError) as error:
            return row, str(error)


def _read(files: Sequence[Path], rows: Sequence[int], network: Network, workers: int) -> DataLoader:
    """Batches of the files with these numbers."""
    images = _Images(files, network.transform)
    return DataLoader(images, AT_ONCE, sampler=rows, collate_fn=list, num_workers=workers)


def _together(files: Sequence[Path], rows: np.ndarray, network: Network, workers: int) -> tuple[list[int], Tensor]:
    """Those of the files that can be read: their numbers and images."""
    read = dict(pair for batch in _read(files, rows.tolist(), network, workers) for pair in batch)
    read = {row: image for row, image in read.items() if isinstance(image, Tensor)}
    if not read:
        raise UserError(f"{files[rows[0]]} and all others like it can't be read: nothing can be labelled.")
    return list(read), torch.stack(list(read.values()))


def _of_study(file: str, device: torch.device | str, pretrained: bool) -> Network:
    from tcnaps.training.checkpoints import load_model

    study = load_study(file)
    model = load_model(study, VARIANTS["Transductive"].training, device)

    def adapted(support: Tensor, labels: Tensor, query: Tensor) -> Callable[[Tensor], Tensor]:
        return partial(model.extract, film=model.adapt(Episode(support, labels, query)))

    return Network(partial(_scaled, study.image_size, study.decoding.resampling), adapted=adapted)


def _scaled(size: int, resampling: Resampling, image: Image.Image) -> Tensor:
    return scale_pixels(square(image, size, resampling)[None])[0]


def _of_torchvision(name: str, device: torch.device | str, pretrained: bool) -> Network:
    from torchvision import models

    if name not in (known := models.list_models(module=models)):
        raise UserError(f"torchvision has no network '{name}'{nearest(name, known)}")
    weights = models.get_model_weights(name).DEFAULT
    network = models.get_model(name, weights=weights if pretrained else None)
    last = [part for part, module in network.named_modules() if isinstance(module, nn.Linear)][-1:]
    if not last:
        raise UserError(f"torchvision's '{name}' does not end in a linear classifier; choose another network.")
    network.set_submodule(last[0], nn.Identity())
    return Network(weights.transforms(), network.eval().to(device))


def _of_timm(name: str, device: torch.device | str, pretrained: bool) -> Network:
    try:
        import timm
    except ImportError as error:
        raise UserError("Networks of timm need that package: pip install timm") from error
    if not timm.is_model(name):
        raise UserError(f"timm has no network '{name}'; timm.list_models() says which there are.")
    network = timm.create_model(name, pretrained=pretrained, num_classes=0)
    if getattr(network, "cls_token", None) is not None:  # its features; by default some networks average over patches
        network.reset_classifier(0, "token")
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(network))
    return Network(transform, network.eval().to(device))


OPEN = {"study": _of_study, "torchvision": _of_torchvision, "timm": _of_timm}
