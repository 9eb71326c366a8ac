"""The classifier's settings: how features become logits."""

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args


@dataclass(frozen=True)
class Head:
    """The classifier's settings. Each is independent of the others; the paper's variants are rows of them.

    Attributes:
        metric: `euclidean` puts the identity in place of every covariance (Ren et al. 2018).
        log_determinant: adds −½ log|Q_k| to the logits (the paper's mixture equation).
        scale: factor on the squared distance inside the softmax: 1 in equation 5, ½ in the mixture equation. `auto`
            chooses it at every step, without labels (`class_statistics.scale_of`), for features that nobody
            meta-trained. Several numbers are those of steps 0, 1, …; the last serves all further steps.
        update: `means` keeps the support set's covariances (Bregman soft clustering). `none` keeps its means as well,
            so that only an estimated class prior changes.
        unlabelled: whose responsibilities refine the classes: the query images', the extra images', or both.
        identity_weight: β of equation 2, in squared feature units.
        task_covariance_divisor: Σ is the scatter divided by n (the paper) or n − 1 (the released code).
        class_covariance_divisor: likewise for Σ_k by the support set alone; n_k − 1 is the released Simple CNAPS.
        class_prior: π of the mixture equation: None for equal classes (the paper), one number per class, or `estimated`
            at each step (`class_statistics.log_prior`), for classes that may differ much in size.
        prior_weight: factor on log π_k, one or several as in `scale`: 1 in the mixture equation; 0 ignores the prior,
            and −1 pushes towards equally many refining images of each class.
        uniform_weight: weight of the uniform distribution in an estimated prior; ½ was chosen on training classes.
        arithmetic: `plain` computes by the equations as they stand; `fast` gives the same numbers but for rounding.
    """

    metric: Literal["mahalanobis", "euclidean"] = "mahalanobis"
    log_determinant: bool = False
    scale: Any = 1.0  # "auto", a number or a tuple of several; a tensor while it is learned
    update: Literal["means and covariances", "means", "none"] = "means and covariances"
    unlabelled: Literal["query", "extra", "both"] = "query"
    identity_weight: float | int = 1.0
    task_covariance_divisor: Literal["n", "n-1"] = "n"
    class_covariance_divisor: Literal["n", "n-1"] = "n"
    class_prior: tuple[float | int, ...] | Literal["estimated"] | None = None
    prior_weight: Any = 1.0  # a number or a tuple of several; a tensor while it is learned
    uniform_weight: float | int = 0.5
    arithmetic: Literal["fast", "plain"] = "fast"

    def __post_init__(self) -> None:
        for setting in fields(self):
            allowed, value = get_args(setting.type) or (False, True), getattr(self, setting.name)
            if isinstance(setting.default, (bool, str)) and value not in allowed:
                raise ValueError(f"{setting.name} is {value!r}; it must be one of {', '.join(map(repr, allowed))}")
        if not _is_positive(self.identity_weight):
            raise ValueError(f"identity_weight is {self.identity_weight!r}; it must be above 0 and finite")
        for scale in self.scale if _are_several(self.scale) else (self.scale,):
            if scale != "auto" and not _is_positive(scale):
                raise ValueError(f"scale is {scale!r}; it must be above 0 and finite, or 'auto'")
        if not _is_positive(self.uniform_weight) or self.uniform_weight > 1:
            raise ValueError(f"uniform_weight is {self.uniform_weight!r}; it must be above 0 and at most 1")
        prior = self.class_prior
        given = isinstance(prior, tuple) and min(prior, default=0) > 0 and math.isclose(sum(prior), 1, rel_tol=1e-5)
        if prior not in (None, "estimated") and not given:
            wanted = "a tuple of numbers above 0 that sum to 1, or 'estimated'"
            raise ValueError(f"class_prior is {prior!r}; it must be {wanted}")


def at_step(setting: Any, step: int) -> Any:
    """The setting of a refinement step, where there is one number for all steps or several for the first of them."""
    return setting[min(step, len(setting) - 1)] if _are_several(setting) else setting


def _is_positive(number: Any) -> bool:
    return number is not None and not isinstance(number, str) and bool(0 < number < math.inf)


def _are_several(setting: Any) -> bool:
    return isinstance(setting, tuple) or getattr(setting, "ndim", 0) == 1


def check_limits(minimum: int, maximum: int) -> None:
    """Raises a ValueError where a limit of the stopping rule is negative."""
    if minimum < 0 or maximum < 0:
        raise ValueError(f"Refinement steps are counted from 0, not minimum {minimum}, maximum {maximum}.")
