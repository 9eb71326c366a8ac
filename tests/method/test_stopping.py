"""The stopping rule against the released loop and planted answers; test_parity.py has the released code's steps."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from oracles import naive_stopping_step

from tcnaps.method.stopping import stopping_step


@given(
    hnp.arrays(np.int64, st.tuples(st.integers(1, 8), st.integers(1, 4)), elements=st.integers(0, 2)),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_stopping_step_is_the_released_loop(labels, minimum, maximum):
    maximum = min(maximum, len(labels) - 1)
    assert stopping_step(labels, minimum, maximum) == naive_stopping_step(labels, minimum, maximum)


def test_stopping_step_planted():
    labels = np.array([[0, 0], [0, 1], [0, 1], [1, 1], [1, 1], [1, 1]])  # changes at steps 1 and 3
    answers = {
        (0, 0): 0,
        (3, 0): 0,
        (0, 1): 1,
        (0, 5): 2,
        (1, 5): 2,
        (2, 4): 2,
        (3, 5): 4,
        (3, 3): 3,
        (5, 5): 5,
        (9, 5): 5,
        (4, 2): 2,
    }
    assert {limits: stopping_step(labels, *limits) for limits in answers} == answers


def test_limits_beyond_the_record_are_refused():
    with pytest.raises(ValueError, match=r"maximum of 3 refinement steps .* not 2\. Raise refinement\.recorded_steps"):
        stopping_step(np.zeros((3, 2), dtype=int), 0, 3)
    with pytest.raises(ValueError, match="counted from 0, not minimum -1"):
        stopping_step(np.zeros((3, 2), dtype=int), -1, 2)
