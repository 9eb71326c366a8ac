"""Transductive CNAPS: few-shot image classification with unlabelled examples (Bateni et al., WACV 2022).

Import the module you need, for instance `from tcnaps.method.clustering import cluster`; CONTRIBUTING.md says what each
room holds. The names below are imported when they are first used, so that looking at results does not load PyTorch.
"""

from importlib import import_module

__version__ = "0.1.0"

PLACES = dict.fromkeys(["LabelledKFold", "TransductiveMahalanobisClassifier"], "tcnaps.estimator")
PLACES["load"] = "tcnaps.training.archives"
__all__ = ["LabelledKFold", "TransductiveMahalanobisClassifier", "__version__", "load"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name in PLACES:
        return getattr(import_module(PLACES[name]), name)
    raise AttributeError(f"module 'tcnaps' has no attribute {name!r}")
