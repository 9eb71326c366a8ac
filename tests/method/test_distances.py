"""Distances with axes and images left out against plain ones in float64, on spectra that fall, stay flat or are odd."""

from itertools import product

import pytest
import torch
from features import soft as soft_features
from hypothesis import given, strategies as st

from tcnaps.evaluation.stopped_rows import stopping_step
from tcnaps.method.clustering import cluster, trajectory
from tcnaps.method.fast import distances as fast_distances
from tcnaps.method.fast.distances import squared_distances
from tcnaps.method.head import Head

SPECTRA = {  # log10 of the variances along 200 axes, the smallest first
    "falling": torch.linspace(-8, 0.5, 200),
    "flat": torch.zeros(200),
    "flat and small": torch.full((200,), -7.0),
    "one huge direction": torch.cat([torch.linspace(-7, -2, 199), torch.tensor([4.0])]),
    "a cliff": torch.cat([torch.full((150,), -9.0), torch.full((50,), 0.5)]),
}


def problem(spectrum, way=6, n=80, identity_weight=1.0, seed=0, shots=()):
    """Points, means, diagonals, members and weights as the refinement loop has them, in float64."""
    generator = torch.Generator().manual_seed(seed)
    spread = 10 ** (SPECTRA[spectrum].double() / 2)
    members = torch.randn(n, 200, generator=generator, dtype=torch.float64) * spread
    weights = torch.randn(n, way, generator=generator, dtype=torch.float64).mul(3).softmax(1)
    labels = torch.arange(len(shots)).repeat_interleave(torch.tensor(shots, dtype=torch.int64))
    weights[: len(labels)] = torch.eye(way, dtype=torch.float64)[labels]
    counts = weights.sum(0)
    means = weights.T @ members / counts[:, None]
    diagonals = members.var(0, correction=0) / (counts[:, None] + 1) + identity_weight
    points = torch.randn(30, 200, generator=generator, dtype=torch.float64) * spread
    return points, means, diagonals, members, weights / (counts + 1)


def plainly(points, means, diagonals, members, weights):
    """Q_k as a matrix, and its inverse."""
    distances, determinants = [], []
    for mean, diagonal, shares in zip(means, diagonals, weights.T):
        covariance = diagonal.diag() + ((members - mean).T * shares) @ (members - mean)
        difference = points - mean
        distances.append((difference @ torch.linalg.inv(covariance) * difference).sum(1))
        determinants.append(torch.logdet(covariance))
    return torch.stack(distances, 1), torch.stack(determinants)


@pytest.mark.parametrize("shots", [(), (3, 3, 3, 3, 3, 3), (1, 9, 2, 4, 1, 5)], ids=str)
@pytest.mark.parametrize("n", [40, 300], ids="{} images".format)
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_distances_are_those_of_the_matrices(spectrum, n, shots):
    """With few images by the Woodbury identity, with many by axes."""
    given = problem(spectrum, n=n, shots=shots)
    distances, determinants = squared_distances(*given, shots)
    expected, expected_determinants = plainly(*given)
    torch.testing.assert_close(distances, expected, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(determinants, expected_determinants, rtol=1e-9, atol=1e-9)


def distances_with(tolerance, given):
    """By the fast arithmetic, with another tolerance than its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_distances, "TOLERANCE", {torch.float64: tolerance})
        return squared_distances(*given)


NUMBERS = st.floats(1e-7, 0.5), st.integers(20, 300), st.integers(0, 10_000)


@given(st.sampled_from(list(SPECTRA)), st.sampled_from([1e-3, 1.0, 10.0]), *NUMBERS)
def test_what_axes_left_out_change_is_within_the_bound(spectrum, identity_weight, tolerance, n, seed):
    """|d² − (p² + q²)| ≤ 2 √ε p q + ε max(p², q²), which is at most (√ε + ε) (p² + q²); log|Q_k| to within ε."""
    given = problem(spectrum, n=n, identity_weight=identity_weight, seed=seed)
    distances, determinants = distances_with(tolerance, given)
    exact, exact_determinants = plainly(*given)
    assert ((distances - exact).abs() <= (tolerance**0.5 + tolerance) * distances + 1e-7 * exact).all()
    assert ((determinants - exact_determinants).abs() <= tolerance + 1e-7 * exact_determinants.abs()).all()


def test_axes_are_left_out_where_the_tolerance_allows_it():
    """So that the tests of the bound have something to test: a large tolerance shows, and none is exact."""
    given = problem("falling", n=300)
    exact = plainly(*given)[0]
    errors = [(distances_with(t, given)[0] - exact).abs().max() for t in (0, 1e-4, 1e-2, 0.3)]
    assert errors[0] < 1e-9 and (torch.tensor(errors).diff() > 0).all()


def test_images_that_hardly_count_are_left_out_without_a_trace():
    *given, weights = problem("flat", n=60)
    weights[5:] *= 1e-19
    torch.testing.assert_close(squared_distances(*given, weights), plainly(*given, weights), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "identity_weight"), [*product([(20, 10), (20, tuple(range(1, 21)))], [1e-3, 1.0, 10.0]), ((50, 2), 1.0)]
)
def test_soft_features_have_the_labels_and_steps_of_float64(setting, identity_weight, monkeypatch):
    """In float32, whose own error is what no axis left out gives."""
    support, labels, query = soft_features(*setting)
    in_float64 = support.double(), labels, query.double()
    head = Head(identity_weight=identity_weight)
    exact = trajectory(*in_float64, head=head, steps=4)
    ours = trajectory(support, labels, query, head=head, steps=4).double()
    monkeypatch.setattr(fast_distances, "TOLERANCE", dict.fromkeys(fast_distances.TOLERANCE, 0))
    without_tolerance = trajectory(support, labels, query, head=head, steps=4).double()
    assert torch.equal(ours.argmax(2), exact.argmax(2))
    assert cluster(support, labels, query, head=head).number == stopping_step(exact.argmax(2).numpy(), 2, 4)
    assert (ours - exact).abs().max() <= 3 * (without_tolerance - exact).abs().max()


def test_threads_change_nothing_beyond_rounding():
    """Classes are shared out among threads."""
    support, labels, query = soft_features(20, 10)
    threads, logits = torch.get_num_threads(), []
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            logits.append(trajectory(support, labels, query, steps=2))
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-5, atol=1e-5)
    assert torch.equal(logits[0].argmax(2), logits[1].argmax(2))


def test_one_huge_direction_keeps_float32s_accuracy():
    """Between the classes of one episode: their means lie far apart there, images of a class close together."""
    support, labels, query = soft_features(20, 10)
    direction = torch.nn.functional.normalize(torch.randn(512, generator=torch.Generator().manual_seed(1)), dim=0)
    places = torch.arange(20.0).repeat_interleave(10)
    for shift in (1.0, 15.0):
        moved = [x + shift * places[:, None] * direction for x in (support, query)]
        exact = trajectory(moved[0].double(), labels, moved[1].double(), steps=4)
        ours = trajectory(moved[0], labels, moved[1], steps=4).double()
        assert torch.equal(ours.argmax(2), exact.argmax(2))
        assert (ours - exact).abs().max() < 1e-5 * exact.abs().max()


@pytest.mark.parametrize("converges", [True, False])
def test_features_that_are_0_in_every_image_change_nothing(converges, monkeypatch):
    """As after ReLU. In float32 the eigenvectors may then not be found, and are found in float64."""
    support, labels, query = soft_features(20, 10)
    support, query = support[:, :260], query[:, :260]
    padded = [torch.cat([x[:, :9], torch.zeros(len(x), 300), x[:, 9:]], dim=1) for x in (support, query)]
    expected = trajectory(support, labels, query, steps=3)
    find = torch.linalg.eigh

    def eigh(matrix):
        if matrix.dtype == torch.float32 and not converges:
            raise torch.linalg.LinAlgError("failed to converge")
        return find(matrix)

    monkeypatch.setattr(torch.linalg, "eigh", eigh)
    torch.testing.assert_close(trajectory(padded[0], labels, padded[1], steps=3), expected, rtol=1e-5, atol=1e-4)
