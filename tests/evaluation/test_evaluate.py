"""What an evaluation writes, when it runs again, and when its files are kept."""

import numpy as np
import pandas as pd
import pytest
import torch
from small_study import blobs, small_study

from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.evaluation import evaluate as module
from tcnaps.evaluation.evaluate import evaluate, evaluate_dataset
from tcnaps.evaluation.result_files import RowsError, load_rows, rows_file
from tcnaps.evaluation.stopped_rows import variant_predictions
from tcnaps.training.checkpoints import CheckpointError, checkpoint_folder, load_model, new_model

pytestmark = pytest.mark.slow  # networks are trained first


@pytest.fixture
def evaluated(study, monkeypatch):
    """The evaluations run by `evaluate`, as (evaluation, dataset), after a first call."""
    evaluate(study, "support")
    run, original = [], module.evaluate_dataset

    def noted(model, source, study, name):
        run.append((name, source.dataset))
        return original(model, source, study, name)

    monkeypatch.setattr(module, "evaluate_dataset", noted)
    return run


def test_only_damaged_files_are_made_again(study, evaluated):
    before = load_rows(study, "variable", ["support"])
    removed, flipped = (rows_file(study, "support", "variable", name) for name in ("blobs", "others"))
    evaluate(study, "support")
    assert evaluated == []
    removed.unlink()
    content = flipped.read_bytes()
    flipped.write_bytes(content[:99] + bytes([content[99] ^ 4]) + content[100:])
    evaluate(study, "support")
    assert evaluated == [("variable", "blobs"), ("variable", "others")]
    pd.testing.assert_frame_equal(load_rows(study, "variable", ["support"]), before)


def test_limits_are_applied_afterwards_and_recorded_steps_are_not(study, evaluated):
    for changes, again in (
        ({"minimum_steps": 0, "maximum_steps": 1}, []),
        ({"recorded_steps": 3}, [("variable", "blobs"), ("variable", "others")]),
    ):
        evaluate(study.model_copy(update={"refinement": study.refinement.model_copy(update=changes)}), "support")
        assert evaluated == again


def test_rows_are_what_the_model_says(study):
    evaluate(study, "support_and_query")
    table = load_rows(study, "variable", ["support_and_query"])
    own = table[(table.dataset == "others") & (table.episode == 1)]
    model, source = load_model(study, "support_and_query"), blobs("others", "test")
    draw = draw_episode(source, study.evaluations["variable"].protocol, study.seed, 1)
    episode = load_episode(source, draw)
    with torch.no_grad():
        logits = model(episode, steps=4)
        stopped = model.classify(episode, 2, 3)
    for t in range(5):
        assert np.array_equal(own[f"prediction_{t}"], logits[t].argmax(1).numpy())
        np.testing.assert_allclose(own[f"confidence_{t}"], logits[t].softmax(1).max(1).values, rtol=1e-5)
    assert np.array_equal(own.label, episode.query_labels) and np.array_equal(own.image, draw.query_images)
    assert np.array_equal(own["shot"], episode.shots[episode.query_labels])
    final = variant_predictions(own, "Transductive", 2, 3)
    assert np.array_equal(final.prediction, stopped.labels) and (final.step == stopped.number).all()


def test_rows_of_all_replicates_come_together_and_each_may_come_alone(study):
    evaluate(study, "support")
    both = study.model_copy(update={"replicates": 2})
    second = both.of_replicate(1)
    for name in ("backbone", "support"):
        there, here = (checkpoint_folder(s) / f"{name}.safetensors" for s in (study, second))
        here.parent.mkdir(parents=True, exist_ok=True)
        here.write_bytes(there.read_bytes())
    with pytest.raises(RowsError, match="replicate-1"):
        load_rows(both, "variable", ["support"])
    evaluate(second, "support")
    rows = load_rows(both, "variable", ["support"])
    first, other = (load_rows(both, "variable", ["support"], [number]) for number in (0, 1))
    assert list(rows["replicate"].unique()) == [0, 1] and len(rows) == len(first) + len(other)
    # The same weights and the same episodes give the same rows.
    pd.testing.assert_frame_equal(first.drop(columns="replicate"), other.drop(columns="replicate"))


def test_an_evaluation_before_training_is_of_the_model_that_training_starts_from(study):
    of_start = study.evaluations["variable"].model_copy(update={"before_training": True})
    study = study.model_copy(update={"evaluations": study.evaluations | {"start": of_start}})
    evaluate(study, "support_and_query")
    start = load_rows(study, "start", ["support_and_query"])
    model, source = new_model(study, "support_and_query").eval(), blobs("others", "test")
    expected = evaluate_dataset(model, source, study, "start")
    own = start[start.dataset == "others"].reset_index(drop=True).drop(columns="images")
    pd.testing.assert_frame_equal(own, expected)
    trained = load_rows(study, "variable", ["support_and_query"])
    assert trained["image"].equals(start["image"]) and not trained["confidence_0"].equals(start["confidence_0"])


def test_what_has_not_been_run_is_named(study):
    with pytest.raises(CheckpointError, match="training = 'support_and_query_log_determinant_refined'"):
        evaluate(study, "support_and_query_log_determinant_refined")
    with pytest.raises(ValueError, match="fixed.*variable, 5-way-1-shot"):
        load_rows(study, "fixed")
    with pytest.raises(ValueError, match="5-way-1-shot.*support"):
        load_rows(study, "5-way-1-shot", ["support"])
    with pytest.raises(RowsError, match="04-evaluate.ipynb with training = 'support'"):
        load_rows(small_study(name="never-run"), "variable")
