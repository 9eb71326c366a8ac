"""A study's `deterministic: true`: results that do not vary, as far as PyTorch can promise it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps

import torch

THREADS = 1  # the number of threads decides the order of additions


@contextmanager
def pinned() -> Iterator[None]:
    """Within the block: one thread, no kernel whose result varies, none chosen by timing, no TF32.

    PyTorch raises a RuntimeError that names any operation without a deterministic kernel. docs/scaling.md says what
    this does and does not guarantee.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it is first used
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    algorithms = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fill, mkldnn = torch.utils.deterministic.fill_uninitialized_memory, torch.backends.mkldnn.deterministic
    torch.set_num_threads(THREADS)
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # for finding errors; it costs time
    try:
        torch.backends.mkldnn.deterministic = True
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.backends.mkldnn.deterministic = mkldnn
        torch.use_deterministic_algorithms(algorithms[0], warn_only=algorithms[1])
        torch.utils.deterministic.fill_uninitialized_memory = fill


def deterministic(function: Callable) -> Callable:
    """Decorates a function whose first argument is a study: it runs `pinned` if the study is deterministic."""

    @wraps(function)
    def run(study, *arguments, **named):
        if not study.deterministic:
            return function(study, *arguments, **named)
        with pinned():
            return function(study, *arguments, **named)

    return run
