"""Features to cluster: synthetic ones of several kinds, and those of the built-in study's model where it is trained."""

from collections.abc import Sequence

import numpy as np
import torch

from tcnaps.config import load_study
from tcnaps.config.settings import FixedProtocol
from tcnaps.data import open_split
from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.training.checkpoints import checkpoint_folder, load_model

D, QUERIES = 512, 10  # dimensions, and query images per class
STUDY, TRAINING = load_study("configs/miniature.yaml"), "support_and_query"


def apart(way: int, shot: int, separation: float = 1.0) -> tuple:
    """Support features, labels and query features of Gaussian classes with a few dominant directions."""
    generator = torch.Generator().manual_seed(way + shot)
    spread = torch.logspace(0.5, -1, D)
    centres = separation * spread * torch.randn(way, D, generator=generator)

    def draw(n):
        return torch.cat([centre + spread * torch.randn(n, D, generator=generator) for centre in centres])

    return draw(shot), torch.arange(way).repeat_interleave(shot), draw(QUERIES)


def diffuse(way: int, shot: int) -> tuple:
    """The same classes, closer together."""
    return apart(way, shot, 0.3)


def soft(way: int, shot: int | Sequence[int]) -> tuple:
    """Features as after meta-training: confidence .3 to .7, half of the variances below 1e-4 · identity_weight."""
    generator = torch.Generator().manual_seed(0)
    variances = 10 ** torch.from_numpy(np.interp(range(D), [0, 58, 250, 300, 511], [-0.3, -2, -4, -5, -8])).float()
    between = {5: 0.1, 20: 0.3, 50: 0.4}[way]  # of the variance
    labels, truth = (torch.arange(way).repeat_interleave(torch.as_tensor(n)) for n in (shot, QUERIES))
    classes = torch.cat([labels, truth])
    centres = between**0.5 * torch.randn(way, D, generator=generator)
    features = centres[classes] + (1 - between) ** 0.5 * torch.randn(len(classes), D, generator=generator)
    features = features * variances.sqrt() @ torch.linalg.qr(torch.randn(D, D, generator=generator)).Q
    return features[: len(labels)], labels, features[len(labels) :]


def few_labels(n: int, way: int = 10, labelled: int = 5, d: int = 64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of Gaussian classes that overlap, labels (−1 where there is none), and the classes themselves."""
    generator = np.random.default_rng(n)
    truth = np.arange(n) % way
    deviations = np.geomspace(2, 0.3, d)
    centres = (5.6 * np.log(way) / d) ** 0.5 * deviations * generator.standard_normal((way, d))  # as hard for any d
    x = (centres[truth] + deviations * generator.standard_normal((n, d))).astype(np.float32)
    return x, np.where(np.arange(n) < way * labelled, truth, -1), truth


@torch.no_grad()
def meta_trained(way: int, shot: int) -> tuple:
    """Features of characters that the built-in study's model has not seen in training."""
    source = open_split(STUDY, "glyphs", "test")
    draw = draw_episode(source, FixedProtocol(way=way, shot=shot), STUDY.seed, 0)
    return load_model(STUDY, TRAINING).features(load_episode(source, draw))[:3]


def trained() -> bool:
    """Whether the built-in study's model has been meta-trained."""
    return (checkpoint_folder(STUDY) / f"{TRAINING}.safetensors").exists()
