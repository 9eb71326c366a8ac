"""Transductive CNAPS: few-shot image classification with unlabelled examples (Bateni et al., WACV 2022).

Six rooms, each importing only rooms before it: `method` (the paper), `config`, `data`, `episodes`, `training` and
`evaluation`. `figures` draws what `evaluation` computes, and `estimator` offers the clustering to scikit-learn. Import
the module you need, for instance `from tcnaps.method.clustering import cluster`. This file imports nothing, so that
looking at results does not load PyTorch: `tcnaps.TransductiveMahalanobisClassifier` and `tcnaps.LabelledKFold` are
imported when they are first used. The package `tcnaps_suite` adds widgets, experiments and the workflow.
"""

__version__ = "0.1.0"


__all__ = ["LabelledKFold", "TransductiveMahalanobisClassifier", "__version__"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name in __all__:
        from tcnaps import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module 'tcnaps' has no attribute {name!r}")
