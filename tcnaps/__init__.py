"""Transductive CNAPS: few-shot image classification with unlabelled examples (Bateni et al., WACV 2022).

Nine rooms, each importing only those before it: `method` (the paper), `config`, `datasets`, `episodes`, `training`,
`evaluation`; then `figures`, `widgets` and `studies`. Import the module you need, for instance
`from tcnaps.method.clustering import cluster`. This file imports nothing, so that looking at results costs no PyTorch.
"""

__version__ = "0.1.0"
