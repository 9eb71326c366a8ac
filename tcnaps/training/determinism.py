"""A study's `deterministic: true`: results that do not vary, as far as PyTorch can promise it (docs/scaling.md)."""

import os
from collections.abc import Callable
from functools import wraps

import torch
from torch.backends import cudnn, mkldnn


def deterministic(function: Callable) -> Callable:
    """Decorates a function whose first argument is a study: the study's setting decides how it computes.

    A RuntimeError by PyTorch names any operation that has no deterministic kernel.
    """

    @wraps(function)
    def run(study, *arguments, **named):
        if not study.deterministic:
            return function(study, *arguments, **named)
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it is first used
        threads, algorithms = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
        torch.set_num_threads(1)  # the number of threads decides the order of additions
        torch.use_deterministic_algorithms(True)
        mkldnn.deterministic = True
        try:
            with cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
                return function(study, *arguments, **named)
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(algorithms)
            mkldnn.deterministic = algorithms

    return run
