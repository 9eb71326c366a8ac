"""The refinement loop's stopping rule (section 3.3, Algorithm 1); `tcnaps.evaluation` applies it to recorded labels.

Refinement stops at the first step at or after the minimum at which no query's most probable class has changed, or else
at the maximum. Step 0 is the classification by the support set alone.
"""


def should_stop(step: int, labels_changed: bool, minimum: int, maximum: int) -> bool:
    """Whether refinement ends after `step`, at which some query's label did or did not change."""
    return step >= maximum or (step >= max(minimum, 1) and not labels_changed)


def check_limits(minimum: int, maximum: int) -> None:
    """Raises a ValueError where a limit is negative."""
    if minimum < 0 or maximum < 0:
        raise ValueError(f"Refinement steps are counted from 0, not minimum {minimum}, maximum {maximum}.")
