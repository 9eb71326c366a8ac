"""The clustering as a scikit-learn classifier, with settings that the features choose."""

from tcnaps.estimator.classifier import LabelledKFold, TransductiveMahalanobisClassifier

__all__ = ["LabelledKFold", "TransductiveMahalanobisClassifier"]
