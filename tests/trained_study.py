"""A small study whose two trainings are finished, once for all tests of evaluations."""

import contextlib

import pytest
from small_study import mapped_blobs, small_study

from tcnaps.config import study as config


@contextlib.contextmanager
def placed(root):
    """Results lie in `root`, and blobs take the place of the miniature's images."""
    from tcnaps.evaluation import evaluate
    from tcnaps.training import meta_training, pretraining
    from tcnaps_suite.experiments import differences, heads

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "project_root", lambda: root)
        for module in (differences, evaluate, heads, meta_training, pretraining):
            patch.setattr(module, "open_split", lambda study, name, split: mapped_blobs(root, name, split))
        yield small_study(trainings=["support", "support_and_query"])


@pytest.fixture(scope="session")
def trained_root(tmp_path_factory):
    from tcnaps.training.meta_training import meta_train
    from tcnaps.training.pretraining import pretrain

    root = tmp_path_factory.mktemp("root")
    with placed(root) as study:
        pretrain(study)
        for training in study.trainings:
            meta_train(study, training)
    return root


@pytest.fixture
def study(trained_root):
    with placed(trained_root) as study:
        yield study
