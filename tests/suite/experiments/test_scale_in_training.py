"""The best scale on the way through a training, which is the study's own and goes on after an interruption."""

import pytest
from small_study import blobs

from tcnaps.config import FixedProtocol, UserError
from tcnaps.training import meta_training
from tcnaps.training.checkpoints import load_model
from tcnaps_suite.experiments import scale_in_training as module
from tcnaps_suite.experiments.comparison import compare_heads, episode_features
from tcnaps_suite.experiments.scale_in_training import scale_in_training

PROTOCOL = FixedProtocol(way=3, shot=1, queries_per_class=3)
SCALES = [0.5, "auto"]


def measured(study, parts=(0, 0.5, 1)):
    return scale_in_training(study, "support", parts, SCALES, [blobs("blobs", "test")], PROTOCOL, 2)


@pytest.mark.slow
def test_the_end_is_the_studys_own_training_and_an_interrupted_call_goes_on(study, monkeypatch):
    meta_training.meta_train(study, "support")
    model = load_model(study, "support")
    heads = {scale: module.replace(model.head, scale=scale) for scale in SCALES}
    episodes = episode_features(study, [blobs("blobs", "test")], PROTOCOL, 2, model)
    expected = compare_heads(episodes, heads, study.refinement)

    calls = []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return compare_heads(*arguments)

    monkeypatch.setattr(module, "compare_heads", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measured(study)
    monkeypatch.setattr(module, "compare_heads", compare_heads)
    rows = measured(study)
    by_stop = {
        stop: accuracies.drop(columns="trained_episodes") for stop, accuracies in rows.groupby("trained_episodes")
    }
    assert list(by_stop) == [0, 4, 8]
    validated = (by_stop[stop].reset_index(drop=True) for stop in (4, 8))  # the training has kept one of them
    assert any(accuracies.equals(expected) for accuracies in validated) and not by_stop[0].reset_index(
        drop=True
    ).equals(expected)


def test_parts_beyond_the_training_are_an_error(study):
    with pytest.raises(UserError, match="between 0 and 1"):
        measured(study, (0, 2))
