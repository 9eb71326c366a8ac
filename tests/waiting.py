"""Finds out, on a CPU, where the host would wait for another device."""

from torch.utils._python_dispatch import TorchDispatchMode


class Operations(TorchDispatchMode):
    """Notes the operations for which the host would wait for the device."""

    WAITING = ("_local_scalar_dense", "nonzero", "equal", "is_nonzero", "_linalg_check_errors", "_unique2", "bincount")

    def __init__(self):
        super().__init__()
        self.waiting = []

    def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
        if operation.overloadpacket.__name__ in self.WAITING:
            self.waiting.append(operation.overloadpacket.__name__)
        return operation(*arguments, **(keywords or {}))
