"""Transductive CNAPS: few-shot image classification with unlabelled examples (Bateni et al., WACV 2022).

Nine rooms, each importing only those before it: `method` (the paper), `config`, `datasets`, `episodes`, `training`,
`evaluation`; then `figures`, `widgets` and `studies`. Import the module you need, for instance
`from tcnaps.method.clustering import cluster`. This file imports nothing, so that looking at results costs no
PyTorch; `tcnaps.TransductiveMahalanobisClassifier` and `tcnaps.LabelledKFold` are imported when they are asked for.
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name in ("TransductiveMahalanobisClassifier", "LabelledKFold"):
        from tcnaps import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module 'tcnaps' has no attribute {name!r}")
