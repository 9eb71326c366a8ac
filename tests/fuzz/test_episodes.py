"""Malformed episodes (protocols, draws, features, labels, images): refused with the reason, or finite results."""

import math

import numpy as np
import pytest
import torch
from fuzzing import accepted, cases
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays
from pydantic import ValidationError
from small_study import sized

from tcnaps import TransductiveMahalanobisClassifier
from tcnaps.config import FixedProtocol, VariableProtocol
from tcnaps.episodes.sampling import draw_episode
from tcnaps.method.clustering import cluster, trajectory
from tcnaps.method.head import Head
from tcnaps_suite.workflow.requirements import check_protocol

# PyTorch warns of a variance over fewer than two features, whatever comes of it.
WARNINGS = pytest.mark.filterwarnings("ignore:y contains no|y has one|columns of X", "ignore:var.*degrees of freedom")
pytestmark = [pytest.mark.fuzz, WARNINGS]
COUNTS = st.integers(-1, 12) | st.sampled_from([50, 500, 10**6])
FIXED = st.fixed_dictionaries({"way": COUNTS, "shot": COUNTS}, optional={"queries_per_class": COUNTS})
LIMITS = "minimum_way maximum_way queries_per_class maximum_support_size maximum_support_per_class maximum_span".split()
VARIABLE = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(LIMITS, COUNTS) | {"shots": st.sampled_from(["meta-dataset", "uniform"])}
)


@st.composite
def sources(draw):
    """Splits of few classes, with superclasses, a hierarchy or neither, as arguments of `sized`."""
    sizes = draw(st.lists(st.integers(0, 9) | st.integers(10, 200), min_size=0, max_size=14))
    numbers = st.lists(st.integers(0, max(len(sizes) - 1, 0)), unique=True, max_size=len(sizes))
    kind = draw(st.sampled_from(["plain", "superclasses", "spans"]))
    groups = tuple(draw(st.lists(st.sampled_from("ab"), min_size=len(sizes), max_size=len(sizes))))
    spans = [sorted(span) for span in draw(st.lists(numbers, max_size=4))]
    spans = [np.array(span, np.int64) for span in spans]
    chosen = {"superclasses": groups} if kind == "superclasses" else {"spans": spans} if kind == "spans" else {}
    return sizes, chosen


@cases(120)
@given(source=sources(), settings=FIXED | VARIABLE, index=st.integers(0, 10**6))
def test_a_draw_is_refused_or_right_and_a_checked_protocol_can_be_drawn(source, settings, index):
    source = sized(*source[0], **source[1])
    kind = FixedProtocol if "way" in settings else VariableProtocol
    if not (protocol := accepted(lambda: kind(**settings), ValidationError)):
        return
    possible = accepted(lambda: check_protocol(source, protocol) or True, ValueError)
    draw = accepted(lambda: draw_episode(source, protocol, 0, index), ValueError, "dataset 'uneven', split 'test'")
    if draw is None:
        assert not possible, "the protocol was checked"
        return
    images = np.concatenate([draw.support_images, draw.query_images])
    labels = np.concatenate([draw.support_labels, draw.query_labels])
    assert len(set(images.tolist())) == len(images) and len(set(draw.classes.tolist())) == len(draw.classes)
    assert (np.searchsorted(source.class_starts, images, side="right") - 1 == draw.classes[labels]).all()
    for part in (draw.support_labels, draw.query_labels):
        assert set(part.tolist()) == set(range(len(draw.classes)))
    if kind is VariableProtocol:
        most = min(protocol.queries_per_class, source.class_sizes[draw.classes].min() // 2)
        assert (np.bincount(draw.query_labels) == most).all()
        if protocol.shots == "uniform":
            assert np.bincount(draw.support_labels).max() <= protocol.maximum_support_per_class
        assert protocol.minimum_way <= len(draw.classes) <= protocol.maximum_way
        assert len(draw.support_labels) <= max(protocol.maximum_support_size, len(draw.classes))


VALUES = st.floats(-4, 4, width=32) | st.sampled_from([0.0, 1.0, 1e-30, 1e4, 1e19, 1e38, np.nan, np.inf, -np.inf])
TAME = st.floats(-4, 4, width=32)
DTYPES = st.sampled_from([np.float32, np.float32, np.float64, np.float16, np.int64, np.complex64, object])


def features(rows, width, values=VALUES, dtypes=DTYPES):
    """Tables of numbers, most of them of one width, and some of other shapes."""
    tables = st.tuples(rows, width).flatmap(lambda shape: arrays.arrays(np.float64, shape, elements=values))
    return st.builds(cast, tables, dtypes)


def cast(table, dtype):
    with np.errstate(all="ignore"):
        return np.nan_to_num(table, posinf=0, neginf=0).astype(dtype) if dtype is np.int64 else table.astype(dtype)


LABELS = st.lists(st.integers(0, 3), max_size=6) | st.lists(st.integers(-2, 9), max_size=6) | st.just([0.5, 1.5])
STEPS = st.fixed_dictionaries(dict.fromkeys(("minimum", "maximum"), st.integers(-1, 4)))
HEADS = st.fixed_dictionaries(
    {},
    optional={
        "metric": st.sampled_from(["mahalanobis", "euclidean"]),
        "log_determinant": st.booleans(),
        "scale": st.sampled_from([1.0, 0.5, "auto", 1e-30, 1e30, 0, -1.0, math.nan]),
        "update": st.sampled_from(["means and covariances", "means"]),
        "unlabelled": st.sampled_from(["query", "extra", "both"]),
        "identity_weight": st.sampled_from([1.0, 1e-6, 1e-30, 1e30, 0, -1.0, math.inf, math.nan]),
        "task_covariance_divisor": st.sampled_from(["n", "n-1"]),
        "class_covariance_divisor": st.sampled_from(["n", "n-1"]),
        "class_prior": st.sampled_from([None, "estimated", (0.5, 0.5), (0.2, 0.3, 0.5), (0.0, 1.0), ()]),
    },
)


@st.composite
def tasks(draw):
    """Support set, labels, query set and extra images; half of them well-formed but for one thing."""
    width, way = draw(st.integers(0, 5)), draw(st.integers(1, 3))
    labels = draw(st.lists(st.integers(0, way - 1), max_size=4)) + list(range(way))
    dtypes = st.sampled_from([np.float32, np.float64])
    good = {
        "support_features": features(st.just(len(labels)), st.just(width), TAME, st.just(np.float32)),
        "support_labels": st.just(np.array(labels)),
        "query_features": features(st.integers(0, 6), st.just(width), TAME, st.just(np.float32)),
        "unlabelled_features": st.none() | features(st.integers(0, 3), st.just(width), TAME, st.just(np.float32)),
    }
    anything = features(st.integers(0, 6), st.integers(0, 5))
    wild = features(st.just(len(labels)), st.just(width), VALUES, dtypes)
    bad = dict.fromkeys(["support_features", "query_features"], anything | wild)
    bad |= {"support_labels": LABELS, "unlabelled_features": st.none() | anything}
    spoilt = draw(st.sets(st.sampled_from(list(good)), max_size=2))
    return {name: draw((bad if name in spoilt else good)[name]) for name in good}


@cases(80)
@given(task=tasks(), settings=HEADS, limits=STEPS)
def test_clustering_refuses_or_gives_finite_probabilities(task, settings, limits):
    step = accepted(lambda: cluster(**task, head=Head(**settings), **limits), ValueError)
    if step is None:
        return
    assert step.logits.shape == (len(task["query_features"]), int(np.max(task["support_labels"])) + 1)
    assert step.logits.isfinite().all() and step.unlabelled_logits.isfinite().all()
    torch.testing.assert_close(step.responsibilities.sum(1), torch.ones(len(step.logits), dtype=step.logits.dtype))
    steps = trajectory(**task, head=Head(**settings), steps=step.number)
    torch.testing.assert_close(steps[-1], step.logits, rtol=0, atol=0)


TARGETS = st.sampled_from([-1, 0, 1, 5, "a", "b", None, "-1", 0.5, math.nan])
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "scale": st.sampled_from(["auto", 1.0, 1e-30, 0, "no"]),
        "log_determinant": st.booleans(),
        "identity_weight": st.sampled_from(["auto", 1.0, 1e-30, 1e30, -1, "no"]),
        "minimum_steps": st.integers(-1, 3),
        "maximum_steps": st.integers(-1, 3),
        "class_prior": st.sampled_from(["auto", None, "estimated", [0.5, 0.5], [1.0], "no", [math.nan, 1]]),
        "normalise": st.booleans(),
    },
)


@cases(120)
@given(data=st.data(), options=OPTIONS)
def test_the_estimator_refuses_or_gives_finite_probabilities(data, options):
    kinds = [st.integers(-1, 2), st.sampled_from(["a", "b", None]), TARGETS]
    y = data.draw(st.lists(data.draw(st.sampled_from(kinds)), max_size=8))
    rows = st.just(len(y)) if data.draw(st.integers(0, 4)) else st.integers(0, 8)
    values = data.draw(st.sampled_from([TAME, VALUES]))
    X = data.draw(features(rows, st.integers(0, 4), values, DTYPES if values is VALUES else st.just(np.float32)))
    y = np.array(y, object) if any(isinstance(label, str) or label is None for label in y) else np.array(y)
    model = TransductiveMahalanobisClassifier(**options)
    with np.errstate(invalid="ignore"):  # scikit-learn's check adds up infinities of both signs
        # Its checks raise both.
        probabilities = accepted(lambda: model.fit(X, y).predict_proba(X), (ValueError, TypeError))
    if probabilities is None:
        return
    assert np.isfinite(model.label_distributions_).all() and np.isfinite(model.covariances_).all()
    np.testing.assert_allclose(model.label_distributions_.sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    assert set(model.transduction_) <= set(model.classes_)
