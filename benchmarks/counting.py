"""Operations and bytes that the networks need for an image, counted, not timed."""

import direct_model
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode


class Traffic(TorchDispatchMode):
    """Bytes that convolutions read and write: the least memory traffic as long as no two layers are fused."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
        found = operation(*arguments, **(keywords or {}))
        if operation.overloadpacket is torch.ops.aten.convolution:
            self.bytes += arguments[0].nbytes + found.nbytes
        return found


def per_image(size: int) -> dict[str, dict[str, int]]:
    """For the set encoder and the backbone: operations (a multiplication and an addition are two) and float32 bytes."""
    model = direct_model.Model()
    film = [(torch.ones(channels), torch.zeros(channels)) for channels in (64, 128, 256, 512) for _ in range(4)]
    image, found = torch.zeros(1, 3, size, size), {}
    encoder = model.task_encoder.set_encoder
    calls = {"set encoder": lambda: encoder(image), "backbone": lambda: model.backbone(image, film)}
    for name, call in calls.items():
        with torch.no_grad(), FlopCounterMode(display=False) as operations, Traffic() as traffic:
            call()
        found[name] = {"operations": operations.get_total_flops(), "bytes": traffic.bytes}
    return found
