"""The comparison of heads and classifiers on the same features."""

import torch
from small_study import blobs, small_study

from tcnaps.config import FixedProtocol
from tcnaps.method.backbone import Backbone
from tcnaps.method.head import Head
from tcnaps.method.model import TransductiveCNAPS
from tcnaps_suite.experiments.comparison import compare_classifiers, compare_heads, episode_features
from tcnaps_suite.experiments.rivals import head_classifier, prototypes

PROTOCOL = FixedProtocol(way=3, shot=1, queries_per_class=3)


def features(n=2):
    torch.manual_seed(0)
    model = TransductiveCNAPS("support", Backbone()).eval()
    return list(episode_features(small_study(), [blobs("blobs", "test"), blobs("others", "test")], PROTOCOL, n, model))


def test_heads_are_compared_on_the_same_episodes():
    heads = {1.0: Head(), 0.25: Head(scale=0.25)}
    frame = compare_heads(features(), heads, small_study().refinement)
    assert len(frame) == 2 * 2 * 2 and set(frame.domain) == {"in", "out"}
    wide = frame.pivot(index=["dataset", "episode"], columns="head", values="without")
    assert (wide[1.0] == wide[0.25]).all()  # step 0 labels do not depend on the scale
    confidence = frame.groupby("head")["confidence"].mean()
    assert confidence[0.25] < confidence[1.0] and frame[["without", "refined"]].stack().between(0, 1).all()


def test_classifiers_are_compared_with_one_of_them_in_every_episode():
    episodes = features()
    answers = iter([episode.query_labels for episode in episodes])
    classifiers = {
        "Simple": head_classifier(Head(), 0, 0),
        "Prototypes": prototypes,
        "perfect": lambda *_: next(answers),
    }
    frame = compare_classifiers(episodes, classifiers, "Simple")
    assert len(frame) == 4 * 3 and (frame["seconds"] > 0).all()
    wide = frame.pivot(index=["dataset", "episode"], columns="classifier", values="accuracy")
    gain = frame.pivot(index=["dataset", "episode"], columns="classifier", values="difference")
    assert (wide["perfect"] == 1).all() and (gain["Simple"] == 0).all()
    assert (gain["Prototypes"] == wide["Prototypes"] - wide["Simple"]).all()
