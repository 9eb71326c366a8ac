"""Transductive CNAPS' clustering as a scikit-learn classifier: `tcnaps.method` computes, this file speaks sklearn."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import _safe_indexing, check_array
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor
from torch.nn import Identity

from tcnaps.estimator.class_shares import EQUAL, FOLDS, MANY_LABELS, Limits, cluster_by_shares, right_of_left_out
from tcnaps.estimator.normalisation import column_divisors, normalised
from tcnaps.estimator.sketch import refinement
from tcnaps.estimator.whitening import Whitening, whitening
from tcnaps.method import class_statistics as equations
from tcnaps.method.clustering import cluster, in_working_precision, stopped, total_variance
from tcnaps.method.head import Head

IDENTITY_SHARE = 0.3  # of the features' total variance, at one label per class: identity_weight under `auto`
IN_FEW_DIMENSIONS = 3.0  # times as much, where few directions hold the total variance (`normalisation.DIMENSIONS`)


class TransductiveMahalanobisClassifier(ClassifierMixin, BaseEstimator):
    """Soft k-means in a regularised Mahalanobis metric, begun by a few labelled rows (Bateni et al., WACV 2022).

    Step 0 classifies by the labelled rows alone, which is Simple CNAPS. At each further step every row counts in every
    class by its probability, and class means and covariances are computed anew (`tcnaps.method.clustering`). Rows
    without a label have the label -1, as in `sklearn.semi_supervised`, or None (or a missing value of pandas) beside
    strings, in a list, a Series or an array of dtype object.

    Memory: X eight times, three tables of rows × classes, and up to 2 GB for some classes at a time; with `predict` or
    `covariances_`, the covariances twice. With "auto" or "balancing", and rows · columns² · classes of 10¹⁰ or more,
    `fit` keeps 32 directions of each class covariance, if columns are 300 or more (`tcnaps.estimator.sketch`).

    Args:
        scale: factor on the squared distances in the softmax; "auto" chooses it at every step from unlabelled rows.
        log_determinant: adds −½ log|Q_k| to the logits, as in a Gaussian mixture.
        identity_weight: weight of the identity in every class covariance, in squared units of X after `normalise`; 1 in
            the paper. "auto" is a share of the total variance, the smaller the more labels a class has.
        minimum_steps: first refinement step after which unchanged labels end the refinement. "auto": the paper's 2, or
            10 where refinement pushes towards equal classes, whose labels stop changing long before probabilities do.
        maximum_steps: last refinement step in any case; 0 means no refinement. "auto": 4, or 10 where the minimum is
            10. In few dimensions (`normalisation.DIMENSIONS`) both are 2, except with "balancing".
        class_prior: probability of each class, in the order of `classes_`; None is the paper's, where all are equal.
            "estimated" sets it at every step. "balancing" pushes towards equally frequent classes; use it if they are
            known to be so. "auto" refines in the way that suits the classes' estimated shares, and not at all where
            refinement seems to lose (`tcnaps.estimator.class_shares`; docs/estimator.md has the rules).
        normalise: scales down outlying rows and columns in other units, subtracts half of the labelled classes' mean
            or more, and brings rows to length 1 (`tcnaps.estimator.normalisation`). Where classes seem to be about
            equal, it whitens (`tcnaps.estimator.whitening`); "whitening" does this alone.

    Attributes:
        classes_: the labels, sorted.
        transduction_: (n,) labels of all rows that `fit` was given.
        label_distributions_: (n, way) each row's probabilities of the classes; 0 and 1 for labelled rows.
        means_, covariances_: (way, d) class means and (way, d, d) Q_k, which are computed when first needed.
        scale_, identity_weight_, class_prior_: the numbers used last.
        n_iter_: refinement steps done.

    Example:
        >>> X = [[0.0, 0.0], [9.0, 0.0], [1.0, 0.0], [8.0, 2.0]]
        >>> TransductiveMahalanobisClassifier().fit_predict(X, ["cat", "dog", None, None]).tolist()
        ['cat', 'dog', 'cat', 'dog']
    """

    _parameter_constraints = {
        "scale": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "log_determinant": ["boolean"],
        "identity_weight": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "minimum_steps": [Interval(Integral, 0, None, closed="left"), StrOptions({"auto"})],
        "maximum_steps": [Interval(Integral, 0, None, closed="left"), StrOptions({"auto"})],
        "class_prior": ["array-like", StrOptions({"auto", "estimated", "balancing"}), None],
        "normalise": ["boolean", StrOptions({"whitening"})],
    }

    def __init__(
        self,
        scale="auto",
        log_determinant=False,
        identity_weight="auto",
        minimum_steps="auto",
        maximum_steps="auto",
        class_prior="auto",
        normalise=True,
    ):
        self.scale = scale
        self.log_determinant = log_determinant
        self.identity_weight = identity_weight
        self.minimum_steps = minimum_steps
        self.maximum_steps = maximum_steps
        self.class_prior = class_prior
        self.normalise = normalise

    def fit(self, X, y) -> "TransductiveMahalanobisClassifier":
        """Clusters the rows of X (n, d) without a label around those with one; y (n,) has −1 or None for no label."""
        self._validate_params()
        X, y = validate_data(self, X, _with_none(y), dtype=[np.float64, np.float32])
        labelled, prior = ~is_unlabelled(y), self.class_prior if isinstance(self.class_prior, str) else None
        codes = self._encode(y[labelled])
        if not self.normalise:
            column_divisors(X / (np.abs(X).max() or 1))  # which warns
        as_given = self.normalise in (False, "whitening")  # a setting from an array is neither True nor False itself
        X, self._normalisation = (X, np.asarray) if as_given else normalised(X, labelled, codes)
        few = not getattr(self._normalisation, "unit", True)
        whitens, limits = bool(self.normalise) and not few, self._limits(2, 2 if few else 4)
        many = FOLDS if few else MANY_LABELS  # in few dimensions, classes are often no clusters
        pushing = self._limits(10, 10) if whitens or prior == "balancing" else (0, 0)
        if labelled.all():
            warnings.warn("y contains no unlabelled rows (-1 or None): nothing refines the classes", stacklevel=2)
            limits = pushing = 0, 0
        features, codes = torch.from_numpy(np.require(X, requirements=["C", "W"])), torch.from_numpy(codes)
        spread = total_variance(features)
        self.identity_weight_ = self.identity_weight
        if self.identity_weight == "auto":
            whole = spread * (IN_FEW_DIMENSIONS if few else 1)
            share = self._identity_share(features[labelled], codes, len(X), whole)
            self.identity_weight_ = share * whole or 1.0  # where all rows are the same, any will do
        head, order = self._head(), np.argsort(~labelled, kind="stable")
        features = in_working_precision(features, spread, head)[order]
        del X  # a table as large as the features
        points, whiten, limits = features, Identity(), pushing if prior == "balancing" else limits
        if prior == "balancing" and whitens and limits[1] > 0:
            points, whiten = whitening(points, len(self.classes_))
        support, points = points[: len(codes)], points[len(codes) :]
        if prior == "auto":
            step, head, whiten = cluster_by_shares(support, codes, points, head, limits, pushing, many)
        elif prior == "balancing":
            step = stopped(refinement(support, codes, points, points[:0], head), *limits)
        else:
            step = cluster(support, codes, points, None, head, *limits)
        self.n_iter_, self.scale_ = step.number, float(step.scale)
        self.class_prior_ = step.log_prior.softmax(0).numpy()
        weights = equations.one_hot(codes, len(self.classes_), features)
        self.label_distributions_ = torch.cat([weights, step.responsibilities]).numpy()[np.argsort(order)]
        self.transduction_ = self.classes_[self.label_distributions_.argmax(1)]
        members = features[: len(codes)].clone()  # a view would keep all rows
        if step.refined_with is not None and head.update != "none":
            members, weights = features, equations.member_weights(weights, step.refined_with)
        self._fitted = _FittedClasses(members, weights, head, whiten)
        return self

    @property
    def means_(self) -> Float[np.ndarray, "way d"]:
        return equations.class_means(self._fitted.rows, self._fitted.weights).numpy()

    @property
    def covariances_(self) -> Float[np.ndarray, "way d d"]:
        return self._fitted.statistics.covariances.numpy()

    def fit_predict(self, X, y) -> np.ndarray:
        """Labels of all rows of X, those without a label in y included: `transduction_`."""
        return self.fit(X, y).transduction_

    def score(self, X, y, sample_weight=None) -> float:
        """The accuracy of `predict` on the rows that have a label; the others are left out, with a warning."""
        unlabelled = is_unlabelled(_with_none(y))
        if not unlabelled.any():
            return super().score(X, _with_none(y).tolist(), sample_weight)
        advice = "Split with cv=tcnaps.LabelledKFold(), which keeps unlabelled rows out of scoring"
        warnings.warn(f"{unlabelled.sum()} rows of y have no label and are not scored. {advice}", stacklevel=2)
        weights = None if sample_weight is None else np.asarray(sample_weight)[~unlabelled]
        return super().score(_safe_indexing(X, ~unlabelled), _with_none(y)[~unlabelled].tolist(), weights)

    def predict(self, X) -> np.ndarray:
        """Labels of new rows, each by itself: they refine nothing."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(1)]

    def predict_proba(self, X) -> Float[np.ndarray, "n way"]:
        """Probabilities of new rows under the classes as `fit` left them, in the order of `classes_`."""
        check_is_fitted(self)
        X = self._normalisation(validate_data(self, X, reset=False, dtype=[np.float64, np.float32], order="C"))
        points, head = torch.tensor(X, dtype=self._fitted.members.dtype), self._head()
        distances = equations.class_distances(self._fitted.whiten(points), self._fitted.statistics, head)
        logits = equations.logits_of(*distances, self.scale_, head)
        return (logits + torch.tensor(self.class_prior_).log()).softmax(1).numpy()

    def _encode(self, labels: np.ndarray) -> np.ndarray:
        """Sets `classes_` and returns each label's place in it."""
        if len(labels) == 0:
            raise ValueError("y contains no labelled rows: every class needs at least one")
        if labels.dtype == object and not any(isinstance(label, str) for label in labels):
            labels = np.array(labels.tolist())  # integers beside None
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) == 1:
            warnings.warn(f"y has one class, '{self.classes_[0]}', which every row gets: -1 is no label", stacklevel=3)
        return codes

    def _limits(self, minimum: int, maximum: int) -> Limits:
        """The minimum and maximum of refinement steps, where "auto" stands for these."""
        limits = zip((self.minimum_steps, self.maximum_steps), (minimum, maximum))
        return tuple(usual if limit == "auto" else limit for limit, usual in limits)

    def _identity_share(self, support: Tensor, codes: Tensor, n_rows: int, spread: float) -> float:
        """The share of the total variance that `auto` makes the identity's weight."""
        way = len(self.classes_)
        by_labels, by_rows = IDENTITY_SHARE * (way / len(codes)) ** 0.75, min(IDENTITY_SHARE, (way / n_rows) ** 0.5)
        if 0 < spread and by_labels < by_rows and codes.bincount().min() >= MANY_LABELS:
            right = {}
            for share in (by_labels, by_rows):
                self.identity_weight_ = share * spread
                right[share] = right_of_left_out(support, codes, self._head())
            return max(right, key=right.get)
        return min(by_labels, by_rows)

    def _head(self) -> Head:
        if isinstance(self.class_prior, str):
            settings = {"estimated": {"class_prior": "estimated"}, "balancing": EQUAL, "auto": {}}[self.class_prior]
        elif self.class_prior is None:
            settings = {}
        else:
            prior = check_array(self.class_prior, ensure_2d=False, input_name="class_prior", dtype=np.float64)
            settings = {"class_prior": tuple(prior.ravel().tolist())}
        numbers = {"scale": self.scale, "identity_weight": self.identity_weight_}
        return Head(log_determinant=self.log_determinant, **numbers, **settings)


@dataclass(frozen=True)
class _FittedClasses:
    """The rows and responsibilities of the last step's class statistics, which are computed when first read."""

    members: Float[Tensor, "m d"]
    weights: Float[Tensor, "m way"]
    head: Head
    whiten: Whitening | Identity  # what members and new rows go through after normalisation

    @cached_property
    def rows(self) -> Float[Tensor, "m d"]:
        return self.whiten(self.members)

    @cached_property
    def statistics(self) -> equations.ClassStatistics:
        """`class_statistics`, where each class leaves out the rows whose weight in it is lost in rounding."""
        (m, d), counts = self.rows.shape, self.weights.sum(0)
        task = equations.covariance(self.rows, self.head)
        covariances = task.new_empty(len(counts), d, d)
        for k, (n, weights) in enumerate(zip(counts, self.weights.T)):
            counting = weights > torch.finfo(n.dtype).eps * n / m
            class_covariance = equations.class_covariances(self.rows[counting], weights[counting, None], self.head)
            covariances[k] = equations.regularised_covariances(class_covariance, task, n[None], self.head)[0]
        return equations.ClassStatistics(equations.class_means(self.rows, self.weights), covariances, counts)


class LabelledKFold(StratifiedKFold):
    """Stratified folds of the labelled rows; those labelled −1 or None are in every training set and in no test set.

    For `cv=` of GridSearchCV and the like. Parameters are those of scikit-learn's StratifiedKFold.
    """

    def split(self, X, y, groups=None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        y = _with_none(y)
        unlabelled = is_unlabelled(y)
        rows = np.flatnonzero(~unlabelled)
        for train, test in super().split(rows, y[rows].tolist()):
            yield np.sort(np.concatenate([rows[train], np.flatnonzero(unlabelled)])), rows[test]


def is_unlabelled(y: np.ndarray) -> Bool[np.ndarray, "n"]:
    """Which rows have no label: −1 in an array of numbers, −1 or None in one of objects."""
    if y.dtype.kind in "USO" and not {"-1", "nan"}.isdisjoint(label for label in y if isinstance(label, str)):
        remedy = "Use dtype object, or a list, and -1 or None itself for rows without a label"
        raise ValueError(f"y holds -1 or nan as text, as arrays with dtype string do. {remedy}.")
    if y.dtype == object:
        return np.array([label is None or (not isinstance(label, str) and label == -1) for label in y], bool)
    return np.zeros(len(y), bool) if y.dtype.kind in "USb" else y == -1


def _with_none(y: object) -> np.ndarray | None:
    """y as an array, with None in place of missing values where it holds objects, or strings in a list."""
    labels = y if y is None else np.asarray(y)
    if isinstance(y, (list, tuple)) and labels.dtype.kind == "U" and not all(isinstance(label, str) for label in y):
        labels = np.array(y, dtype=object)  # else a nan among strings would become a class of that name
    if labels is not None and labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError("Input y contains NaN. Write -1 or None for a row without a label.")
    return np.where(pd.isna(labels), None, labels) if labels is not None and labels.dtype == object else labels
