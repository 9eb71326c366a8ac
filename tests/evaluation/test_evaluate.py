"""When an evaluation runs again, and when its files are kept."""

import pandas as pd
import pytest

from tcnaps.evaluation import evaluate as module
from tcnaps.evaluation.evaluate import evaluate
from tcnaps.evaluation.result_files import load_rows, rows_file

pytestmark = pytest.mark.slow  # networks are trained first


@pytest.fixture
def evaluated(study, monkeypatch):
    """The evaluations run by `evaluate`, as (evaluation, dataset), after a first call."""
    evaluate(study, "support")
    run, original = [], module.evaluate_dataset

    def noted(model, source, study, training, name, *options, **more):
        run.append((name, source.dataset))
        return original(model, source, study, training, name, *options, **more)

    monkeypatch.setattr(module, "evaluate_dataset", noted)
    return run


@pytest.mark.parametrize("damage", ["removed", "truncated", "flipped"])
def test_only_a_damaged_file_is_made_again(study, evaluated, damage):
    before = load_rows(study, "variable", ["support"])
    path = rows_file(study, "support", "variable", "others")
    content = path.read_bytes()
    path.write_bytes(
        content[:1000] if damage == "truncated" else content[:99] + bytes([content[99] ^ 4]) + content[100:]
    )
    if damage == "removed":
        path.unlink()
    evaluate(study, "support")
    assert evaluated == [("variable", "others")]
    pd.testing.assert_frame_equal(load_rows(study, "variable", ["support"]), before)


@pytest.mark.parametrize(
    ("changes", "again"),
    [
        ({"minimum_steps": 0, "maximum_steps": 1}, []),
        ({"recorded_steps": 3}, [("variable", "blobs"), ("variable", "others")]),
    ],
)
def test_limits_are_applied_afterwards_and_recorded_steps_are_not(study, evaluated, changes, again):
    other = study.model_copy(update={"refinement": study.refinement.model_copy(update=changes)})
    evaluate(other, "support")
    assert evaluated == again
    evaluated.clear()
    evaluate(study, "support")
    assert evaluated == again
