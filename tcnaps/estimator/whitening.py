"""Lets directions count alike that differ in variance, where classes seem to be about equally frequent."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from tcnaps.method.clustering import total_variance

TYPICAL = 0.5  # of the total variance, over the number of classes: a direction of so much variance keeps half of it
TINY = 1e-12


@dataclass(frozen=True)
class Whitening:
    """Subtracts a mean from rows, shortens them along some directions, and brings them to one length."""

    mean: Float[Tensor, "d"]
    directions: Float[Tensor, "d r"]
    change: Float[Tensor, "r"]  # of a row along each direction, as a factor − 1
    length: float

    def __call__(self, rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        rows = rows - self.mean
        rows.addmm_(rows @ self.directions * self.change, self.directions.T)
        return rows.mul_(self.length / rows.norm(dim=1, keepdim=True).clamp_min(TINY))


def whitening(rows: Float[Tensor, "n d"], way: int) -> tuple[Float[Tensor, "n d"], Whitening]:
    """Divides each principal direction's variance v by 1 + v / limit; returns the rows, and what was done to them.

    The limit is the total variance · `TYPICAL` / way. In the end the total variance is as before. The mean of all rows
    is subtracted, as is right where classes are equally frequent.
    """
    mean, total = rows.mean(0), max(total_variance(rows), TINY)
    wide, centred = rows.shape[1] > len(rows), rows - mean
    products = centred @ centred.T if wide else centred.T @ centred
    values, vectors = (part.to(rows) for part in torch.linalg.eigh(products.double()))  # float32 may not converge
    directions = centred.T @ vectors / values.clamp_min(TINY * len(rows) * total).sqrt() if wide else vectors
    limit = len(rows) * total * TYPICAL / way  # as `values`: n times a variance
    done = Whitening(mean, directions, (1 + values.clamp_min(0) / limit).rsqrt() - 1, 1.0)
    whitened = done(rows)
    length = (total / max(total_variance(whitened), TINY)) ** 0.5
    return whitened.mul_(length), replace(done, length=length)
