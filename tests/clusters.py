"""Features of classes that lie around random centres, for tests of what classifies them."""

import torch


def clusters(shots, queries, d, separation=1.0, noise=1.0, seed=0, offset=0.0, dtype=torch.float64):
    """Support features, labels, query features and labels of classes with these numbers of images."""
    generator = torch.Generator().manual_seed(seed)
    centres = offset + separation * torch.randn(len(shots), d, generator=generator, dtype=dtype)

    def draw(counts):
        labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        return centres[labels] + noise * torch.randn(len(labels), d, generator=generator, dtype=dtype), labels

    return *draw(shots), *draw(queries)
