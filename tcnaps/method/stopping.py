"""The refinement loop's stopping rule (section 3.3, Algorithm 1), applied to labels recorded after every step.

Refinement stops at the first step at or after the minimum at which no query's most probable class has changed, or else
at the maximum. Step 0 is the classification by the support set alone.
"""

import numpy as np
from jaxtyping import Bool, Int, Integer


def should_stop(step: int, labels_changed: bool, minimum: int, maximum: int) -> bool:
    """Whether refinement ends after `step`, at which some query's label did or did not change."""
    return step >= maximum or (step >= max(minimum, 1) and not labels_changed)


def stopping_step(labels: Integer[np.ndarray, "n_steps_and_1 n_query"], minimum: int, maximum: int) -> int:
    """`stopping_steps` of one episode, from the class predicted for each query after refinement steps 0, 1, …"""
    changed = (labels[1:] != labels[:-1]).any(axis=1)
    return int(stopping_steps(changed[None], minimum, maximum)[0])


def stopping_steps(
    changed: Bool[np.ndarray, "n_episodes n_steps"], minimum: int, maximum: int
) -> Int[np.ndarray, "n_episodes"]:
    """The step at which the rule stops in each episode; `changed` says whether a label changed at steps 1, 2, …

    A minimum of 0 acts as 1; its upper limit is the maximum. A maximum of 0 means no refinement. A maximum beyond the
    recorded steps is a ValueError.
    """
    check_limits(minimum, maximum)
    recorded = changed.shape[1]
    if maximum > recorded:
        raise ValueError(
            f"A maximum of {maximum} refinement steps needs as many recorded, not {recorded}. Raise "
            "refinement.recorded_steps in the study's YAML and evaluate again, or lower the maximum."
        )
    first = min(max(minimum, 1), maximum)
    if first == maximum:
        return np.full(len(changed), maximum)
    unchanged = ~changed[:, first - 1 : maximum]
    return np.where(unchanged.any(axis=1), first + unchanged.argmax(axis=1), maximum)


def check_limits(minimum: int, maximum: int) -> None:
    """Raises a ValueError where a limit is negative."""
    if minimum < 0 or maximum < 0:
        raise ValueError(f"Refinement steps are counted from 0, not minimum {minimum}, maximum {maximum}.")
