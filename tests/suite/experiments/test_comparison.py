"""The comparison of heads and classifiers on the same features."""

from small_study import blobs, small_study
from untrained import untrained

from tcnaps.config import FixedProtocol
from tcnaps.method.head import Head
from tcnaps_suite.experiments.comparison import compare_classifiers, episode_features
from tcnaps_suite.experiments.rivals import head_classifier, prototypes

PROTOCOL = FixedProtocol(way=3, shot=1, queries_per_class=3)


def test_classifiers_are_compared_with_one_of_them_in_every_episode():
    sources = [blobs(name, "test") for name in ("blobs", "others")]
    episodes = list(episode_features(small_study(), sources, PROTOCOL, 2, untrained("support")))
    answers = iter([episode.query_labels for episode in episodes])
    classifiers = {
        "Simple": head_classifier(Head(), 0, 0),
        0.25: head_classifier(Head(scale=0.25), 0, 0),
        "Prototypes": prototypes,
        "perfect": lambda *_: next(answers),
    }
    frame = compare_classifiers(episodes, classifiers, "Simple")
    assert len(frame) == 4 * 4 and (frame["seconds"] > 0).all()
    assert set(frame["domain"]) == {"in", "out"}
    wide = frame.pivot(index=["dataset", "episode"], columns="classifier", values="accuracy")
    gain = frame.pivot(index=["dataset", "episode"], columns="classifier", values="difference")
    assert (wide["perfect"] == 1).all() and (gain["Simple"] == 0).all()
    assert (gain[0.25] == 0).all(), "the scale changes no label of step 0"
    assert (gain["Prototypes"] == wide["Prototypes"] - wide["Simple"]).all()
