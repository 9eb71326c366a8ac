"""Support and query images to a task embedding of 64 numbers (section 3.3, equations 6 and 7)."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tcnaps.method.fast import Arithmetic, fast_encoding, is_fast

EMBEDDING = 64


class SetEncoder(nn.Module):
    """The CNN d of equations 6 and 7: five layers of convolution, batch-norm, ReLU and 2×2 max-pool, then an average.

    As in the released code, batch-norms normalise with the images at hand, support and query apart; no average is kept.
    """

    arithmetic: Arithmetic = "fast"
    precision = torch.float32  # of the convolutions; statistics have that of the parameters

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(3 if i == 0 else EMBEDDING, EMBEDDING, 3, padding=1) for i in range(5))
        self.norms = nn.ModuleList(nn.BatchNorm2d(EMBEDDING) for _ in range(5))

    def forward(self, images: Float[Tensor, "n 3 height width"]) -> Float[Tensor, "n 64"]:
        fast = is_fast(self.arithmetic)
        x = images.contiguous(memory_format=torch.channels_last if fast else torch.contiguous_format)
        if self.precision == torch.bfloat16:
            x = x.to(self.precision)
        return (fast_encoding(self, x) if fast else self._layers(x)).mean((2, 3), dtype=images.dtype)

    def _layers(self, x: Float[Tensor, "n 3 height width"]) -> Float[Tensor, "n 64 h2 w2"]:
        for conv, norm in zip(self.convs, self.norms):
            x = F.conv2d(x, conv.weight.to(x.dtype), conv.bias.to(x.dtype), padding=1)
            x = F.batch_norm(x, None, None, norm.weight, norm.bias, training=True, eps=norm.eps)
            x = F.relu(F.max_pool2d(x, 2))  # the order does not matter; this way ReLU has a quarter of the work
        return x


class TaskEncoder(nn.Module):
    """g of the paper. `support_only` (Simple CNAPS, COT) or `transductive`, which also looks at the query images."""

    def __init__(self, kind: Literal["support_only", "transductive"], lstm_layers: int = 1):
        super().__init__()
        self.set_encoder = SetEncoder()
        self.lstm = nn.LSTM(EMBEDDING, EMBEDDING, lstm_layers) if kind == "transductive" else None

    def forward(
        self,
        support_images: Float[Tensor, "n_support 3 height width"],
        support_labels: Int[Tensor, "n_support"],
        query_images: Float[Tensor, "n_query 3 height width"],
    ) -> Float[Tensor, "64"]:
        encoded = self.set_encoder(support_images)
        if self.lstm is None:
            return encoded.mean(0)
        support = mean_of_class_means(encoded, support_labels)  # e_s, equation 6
        query = self.set_encoder(query_images).mean(0)  # e_q, equation 7
        outputs, _ = self.lstm(torch.stack([support, query]))  # two steps, from a zero state
        return outputs[-1]


def mean_of_class_means(encoded: Float[Tensor, "n c"], labels: Int[Tensor, "n"]) -> Float[Tensor, "c"]:
    """Average over classes of the class averages, so that no class counts for more because it has more images."""
    shares = 1 / (labels == labels[:, None]).sum(1, dtype=encoded.dtype)  # 1 / n_k for each image of class k
    return shares @ encoded / shares.sum()
