"""The refinement loop's stopping rule (section 3.3, Algorithm 1); `tcnaps.evaluation` applies it to recorded labels."""


def should_stop(step: int, labels_changed: bool, minimum: int, maximum: int) -> bool:
    """Whether refinement ends after `step`: at the maximum, or from the minimum on where no query's label changed."""
    return step >= maximum or (step >= max(minimum, 1) and not labels_changed)


def check_limits(minimum: int, maximum: int) -> None:
    """Raises a ValueError where a limit is negative."""
    if minimum < 0 or maximum < 0:
        raise ValueError(f"Refinement steps are counted from 0, not minimum {minimum}, maximum {maximum}.")
