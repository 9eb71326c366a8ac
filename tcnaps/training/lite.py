"""Back-propagation through a sampled part of the support set: LITE (Bronskill et al. 2021, arXiv 2107.01105).

All images go through the networks, so the loss is exact. Of an episode's N support images, though, only H, drawn anew
for each episode, are back-propagated through the backbone, and their contribution to the gradient counts N / H times:

    Σ_n (∂L/∂z_n)(∂z_n/∂θ)   becomes   (N / H) Σ_{n in sample} (∂L/∂z_n)(∂z_n/∂θ),

where z_n are the features of image n and θ is gamma and beta. Each image is in the sample with probability H / N, and
∂L/∂z_n is exact, because the clustering is differentiated with respect to all features. So the estimate is unbiased for
every learned weight, though it varies.

Query images are not sampled. Nor is the task encoder: its batch-norms couple all images of a set, so that no sum over
images could be sampled without a bias. It is a small part of an episode's memory and time.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tcnaps.method.episode import Episode
from tcnaps.method.model import TransductiveCNAPS


def sampled_support(episode: Episode, size: int | None, seed: int) -> Int[np.ndarray, "h"] | None:
    """Which support images of an episode to back-propagate through; None is all of them.

    Args:
        size: how many, at most; None is all.
        seed: decides which, together with the episode's number.
    """
    n_support = len(episode.support_images)
    if size is None or size >= n_support:
        return None
    return np.random.default_rng([seed, 3, episode.draw.index]).choice(n_support, size, replace=False)


def sampled_features(
    model: TransductiveCNAPS, episode: Episode, sample: Int[np.ndarray, "h"] | None
) -> tuple[Tensor, Tensor, Tensor, None]:
    """`model.features` of an episode without unlabelled images: the same numbers, with sampled gradients.

    Args:
        sample: numbers of support images; None is all of them.
    """
    if sample is None:
        return model.features(episode)
    film = model.adapt(episode)
    n_support = len(episode.support_images)
    rest = np.setdiff1d(np.arange(n_support), sample)
    with torch.no_grad():
        unsampled = model.extract(episode.support_images[rest], film)
    images = torch.cat([episode.support_images[sample], episode.query_images])
    sampled, query = model.extract(images, film).split([len(sample), len(episode.query_images)])
    features = torch.cat([scaled_gradient(sampled, n_support / len(sample)), unsampled])
    support = features[np.argsort(np.concatenate([sample, rest]))]
    dtype = model.settings.clustering_dtype
    return support.to(dtype), episode.support_labels, query.to(dtype), None


def scaled_gradient(x: Float[Tensor, "n d"], factor: float) -> Float[Tensor, "n d"]:
    """x itself, with gradients multiplied by the factor."""
    return x + (factor - 1) * (x - x.detach())
