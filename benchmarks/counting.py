"""Counts the operations and bytes that the networks need for an image."""

import direct_model
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode


class Traffic(TorchDispatchMode):
    """Counts the bytes that convolutions read and write: the least memory traffic unless layers are fused."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
        result = operation(*arguments, **(keywords or {}))
        if operation.overloadpacket is torch.ops.aten.convolution:
            self.bytes += arguments[0].nbytes + result.nbytes
        return result


def per_image(size: int) -> dict[str, dict[str, int]]:
    """Operations (a multiplication and an addition are two) and float32 bytes of the set encoder and the backbone."""
    model = direct_model.Model()
    film = [(torch.ones(channels), torch.zeros(channels)) for channels in (64, 128, 256, 512) for _ in range(4)]
    image, counts = torch.zeros(1, 3, size, size), {}
    encoder = model.task_encoder.set_encoder
    calls = {"set encoder": lambda: encoder(image), "backbone": lambda: model.backbone(image, film)}
    for name, call in calls.items():
        with torch.no_grad(), FlopCounterMode(display=False) as operations, Traffic() as traffic:
            call()
        counts[name] = {"operations": operations.get_total_flops(), "bytes": traffic.bytes}
    return counts
