"""Transductive CNAPS: few-shot image classification with unlabelled examples (Bateni et al., WACV 2022).

Images flow one way: `datasets` → `sampling` → `model` → `evaluation` → `statistics` → `figures` and `tables`.
Import the module you need, for instance `from tcnaps.method.clustering import cluster`; this file imports nothing, so that
looking at results costs no PyTorch.
"""

__version__ = "0.1.0"
