"""A user's images → features, by the network of a study, of torchvision or of timm.

A study's network is first adapted (FiLM) to the labelled images and some of the others, as in an episode.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from tqdm.auto import tqdm

from tcnaps.config import FixedProtocol, Study, UserError, load_study
from tcnaps.config.errors import nearest
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
    """Images → features. Either `features` or `adapted` is given.

    Attributes:
        transform: one RGB image → the network's input.
        features: a batch → its features, without adaptation.
        adapted: (labelled images, their classes, unlabelled images) → the function from a batch to its features.
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
    package, _, network = name.partition(":")
    if package not in OPEN or not network:
        raise UserError(f"There is no backbone '{name}': use study:FILE.yaml, torchvision:NAME or timm:NAME.")
    try:
        return OPEN[package](network, device, pretrained)
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"The weights of '{name}' can't be downloaded ({error}). Without internet, use a study's network "
            "(--backbone study:configs/miniature.yaml) or features from elsewhere (--features)."
        ) from error


@torch.inference_mode()
def embed(
    files: Sequence[Path], codes: np.ndarray, network: Network, device: torch.device | str = "cpu"
) -> tuple[np.ndarray, dict[int, str]]:
    """Features of the files, (n, d), nan where a file can't be read; and the numbers of such files, with the reasons.

    Args:
        codes: each file's class, numbered from 0, or -1 where it has no label.
    """
    extract = network.features or _adapted(files, codes, network, device)
    features, unreadable = {}, {}
    for start in tqdm(range(0, len(files), AT_ONCE), desc="features", unit="batch"):
        images, reasons = _read(files, range(start, min(start + AT_ONCE, len(files))), network)
        unreadable |= reasons
        if images:
            of_batch = extract(torch.stack(list(images.values())).to(device))
            features |= zip(images, of_batch.flatten(1).float().cpu().numpy())
    table = np.full((len(files), len(next(iter(features.values()), ()))), np.nan, np.float32)
    for row, of_image in features.items():
        table[row] = of_image
    return table, unreadable


@torch.inference_mode()
def embed_split(source: ImageSource, network: Network, device: torch.device | str = "cpu") -> ImageSource:
    """The split with features, (n, d), in place of its images. The network is not adapted.

    Raises:
        UserError: the network is a study's, which has no features without an episode.
    """
    if network.features is None:
        raise UserError("A study's network adapts to each episode. Name it 'study' instead.")
    features = []
    for images in tqdm(np.array_split(source.images, -(-len(source.images) // AT_ONCE)), desc=source.dataset):
        batch = torch.stack([network.transform(Image.fromarray(image)) for image in images])
        features.append(network.features(batch.to(device)).flatten(1).float().cpu().numpy())
    return replace(source, images=np.concatenate(features))


def feature_sources(
    name: str, study: Study, protocol: FixedProtocol, device: torch.device | str = "cpu", split: str = "test"
) -> tuple[list[ImageSource], list[str]]:
    """Sources of episodes for a comparison on features: a split of the study's datasets, or a file.

    Args:
        name: "study", torchvision:NAME, timm:NAME or a file .npz of `features` and `labels`.

    Returns:
        Sources of images for "study", else of features; and the reasons why datasets were left out.

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


def _read(files: Sequence[Path], rows: Iterable[int], network: Network) -> tuple[dict[int, Tensor], dict[int, str]]:
    """The images of these files as the network takes them, and the reasons why others can't be read."""
    images, reasons = {}, {}
    for row in rows:
        try:
            images[row] = network.transform(to_rgb(files[row].read_bytes(), fast=False, orient=True))
        except (DatasetError, OSError) as error:
            reasons[row] = str(error)
    return images, reasons


def _adapted(
    files: Sequence[Path], codes: np.ndarray, network: Network, device: torch.device | str
) -> Callable[[Tensor], Tensor]:
    """The network, adapted to the labelled images and to some of the others."""
    others = np.flatnonzero(codes < 0)
    others = others[np.unique(np.linspace(0, len(others) - 1, TO_ADAPT).astype(int))]
    sets = [_read(files, rows.tolist(), network)[0] for rows in (np.flatnonzero(codes >= 0), others)]
    for images, kind in zip(sets, ("labelled", "unlabelled")):
        if not images:
            raise UserError(f"No {kind} image can be read, such as {files[0 if kind == 'labelled' else others[0]]}.")
    support, query = (torch.stack(list(images.values())).to(device) for images in sets)
    labels = np.unique(codes[list(sets[0])], return_inverse=True)[1]  # no image of some class may be readable
    return network.adapted(support, torch.from_numpy(labels).to(device), query)


def _of_study(file: str, device: torch.device | str, pretrained: bool) -> Network:
    from tcnaps.training.checkpoints import load_model

    study = load_study(file)
    model = load_model(study, VARIANTS["Transductive"].training, device)

    def transform(image: Image.Image) -> Tensor:
        return scale_pixels(square(image, study.image_size, study.decoding.resampling)[None])[0]

    def adapted(support: Tensor, labels: Tensor, query: Tensor) -> Callable[[Tensor], Tensor]:
        return partial(model.extract, film=model.adapt(Episode(support, labels, query)))

    return Network(transform, adapted=adapted)


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
