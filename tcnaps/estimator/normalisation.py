"""Makes embeddings of any network, or columns of any table, comparable, as a head without meta-training needs them."""

import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

POWER = 0.7  # of features that are never negative, such as those behind a ReLU, whose distribution has a long tail
KEPT = 0.5  # of the labelled classes' mean, or of the rows' deviation from it if that is less; the rest is subtracted
ENTRY = 5.0  # of features of both signs: entries are cut at so many median deviations from their column's median
COLUMN = 10.0  # columns that deviate more than this many times the typical one are in other units, and scaled to it
MAGNITUDES = 100.0  # times the typical one, from which on a warning says so
ROW = 5.0  # times the median row's length: longer rows are outliers
DIMENSIONS = 4.0  # effective dimensions from which on a row's direction says enough, and its length is left out
EMBEDDED = 100  # columns from which on it does, too, however few dimensions hold the variance
LOOKED_AT = 2000  # rows that medians and effective dimensions are computed from
TINY = 1e-12


@dataclass(frozen=True)
class Normalisation:
    """Subtracts a part of a mean from rows of X, and brings them to length 1 unless they have few dimensions."""

    largest: float  # of all entries of X, by which they are divided, so that no square overflows
    limits: tuple[Float[np.ndarray, "d"] | float, Float[np.ndarray, "d"] | float]  # to which entries are cut
    divisors: Float[np.ndarray, "d"]  # 1, or more for columns in other units
    power: float
    longest: float  # rows beyond it are shortened to it
    centre: Float[np.ndarray, "d"]  # a part of the labelled classes' mean; all rows' would assume equal classes
    unit: bool  # whether rows end with length 1

    def __call__(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        X = np.clip(X / self.largest, *self.limits) / self.divisors
        X = X if self.power == 1 else np.maximum(X, 0) ** self.power  # new rows may be negative
        return self._centred(_shortened(X, self.longest))

    def _centred(self, X: np.ndarray) -> np.ndarray:
        X = X - self.centre
        return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), TINY) if self.unit else X


def normalised(
    X: Float[np.ndarray, "n d"], labelled: Bool[np.ndarray, "n"], codes: Int[np.ndarray, "n_labelled"]
) -> tuple[Float[np.ndarray, "n d"], Normalisation]:
    """The rows, of which some have labels (`codes`, from 0), and what was done to them, for new rows."""
    largest = float(np.abs(X).max()) or 1.0
    X = X / largest
    some = np.lexsort((X.sum(1), X[:, 0]))[:: -(-len(X) // LOOKED_AT)]  # the same rows in any order
    limits = entry_limits(X[some], X[labelled], codes) if X.min() < 0 else (-np.inf, np.inf)
    X = np.clip(X, *limits)
    divisors = column_divisors(X)
    power = POWER if X.min() >= 0 else 1.0
    X = X / divisors if power == 1 else (X / divisors) ** power
    longest = ROW * float(np.median(np.linalg.norm(X, axis=1))) or np.inf  # 0: most rows are zero
    X = _shortened(X, longest)
    members = X[labelled]
    centre = np.mean([members[codes == k].mean(0) for k in np.unique(codes)], axis=0).astype(X.dtype)
    unit = X.shape[1] >= EMBEDDED or effective_dimensions(X[some]) >= DIMENSIONS
    deviation = np.square(X[some] - centre).sum(1).mean() ** 0.5
    centre *= 1 - unit * KEPT * min(1, deviation / max(np.linalg.norm(centre), TINY))
    done = Normalisation(largest, limits, divisors, power, longest, centre, unit)
    return done._centred(X), done


def entry_limits(
    X: Float[np.ndarray, "n d"], members: Float[np.ndarray, "n_labelled d"], codes: Int[np.ndarray, "n_labelled"]
) -> tuple[Float[np.ndarray, "d"], Float[np.ndarray, "d"]]:
    """Per column the lowest and the highest entry that is no outlier.

    An outlier is far from the medians of X and of every class's labelled rows, for a rare class may lie apart.
    """
    medians = np.stack([_medians(X), *(_medians(members[codes == k]) for k in np.unique(codes))])
    deviation = _medians(np.abs(X - medians[0]))
    reach = np.where(deviation > 0, ENTRY * deviation, np.inf).astype(X.dtype)
    return medians.min(0) - reach, medians.max(0) + reach


def column_divisors(X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d"]:
    """What columns in other units are divided by; 1 for the others. A warning says that there are some."""
    deviations = X.std(0) * (np.ptp(X, 0) > 0)  # a constant column's would be a rounding error
    busy = (deviations > 0) & ((X > X.min(0)).mean(0) >= 0.5)  # behind a ReLU, many columns are 0 in most rows
    varying = busy if X.shape[1] >= EMBEDDED and busy.any() else deviations > 0
    typical = np.median(deviations[varying]) if varying.any() else 1.0
    divisors = np.where(deviations > COLUMN * typical, deviations / typical, 1).astype(X.dtype)
    if number := (divisors > MAGNITUDES).sum():
        much = f"columns of X ({number}) vary more than {MAGNITUDES:g} times as much as the median one"
        warnings.warn(f"{much}: normalise=True scales them down to it; without, they decide alone", stacklevel=4)
    return divisors


def effective_dimensions(X: Float[np.ndarray, "n d"]) -> float:
    """(Σ eigenvalues)² / Σ eigenvalues² of the covariance: d where all directions vary equally, 1 where one does."""
    X = X.astype(np.float64) - X.mean(0)
    products = X.T @ X if X.shape[1] < X.shape[0] else X @ X.T
    squares = np.square(products).sum()
    return float(products.trace() ** 2 / squares) if squares > 0 else 0.0


def _medians(X: np.ndarray) -> np.ndarray:  # of columns: several times as fast as np.median where rows are few
    X = np.sort(np.ascontiguousarray(X.T), 1)
    return (X[:, (X.shape[1] - 1) // 2] + X[:, X.shape[1] // 2]) / 2


def _shortened(X: np.ndarray, longest: float) -> np.ndarray:
    return X * np.minimum(1, longest / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), TINY)).astype(X.dtype)
