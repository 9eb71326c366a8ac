"""Heads whose numbers are learned: gradients, the paper's head at the start, numbers above 0."""

from itertools import islice

import pytest
import torch
from clusters import clusters
from torch.nn.functional import cross_entropy
from untrained import episode_of_noise, untrained

from tcnaps.method.clustering import refinement_steps, trajectory
from tcnaps.method.head import Head
from tcnaps.method.variants import ALL_TRAININGS, FURTHER_TRAININGS, FURTHER_VARIANTS, TRAININGS, VARIANTS

LEARNED_SCALE = "support_and_query_learned_scale"
LEARNED_STEPS = "support_and_query_learned_steps"


@pytest.mark.parametrize("options", [{}, {"log_determinant": True, "scale": 0.5}, {"update": "means"}], ids=str)
@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("n_features", [5, 30])  # below and above the number of images
def test_gradients_are_those_of_finite_differences(n_features, steps, options):
    support, labels, query, truth = clusters((3, 1, 4), (3, 3, 3), n_features)

    def loss(exponent):
        head = Head(**options | {"scale": Head(**options).scale * exponent.exp()})
        return cross_entropy(trajectory(support, labels, query, head=head, steps=steps)[-1], truth)

    start = torch.tensor(-2.0, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, start)
    assert torch.autograd.grad(loss(start), start)[0].abs() > 1e-5


@pytest.mark.parametrize("numbers", [1.5, (0.5, 1.5, 2.0)])
def test_tensors_and_numbers_give_the_same_logits(numbers):
    support, labels, query, _ = clusters((3, 1, 4), (3, 3, 3), 30)
    both = torch.tensor(numbers, dtype=torch.float64), numbers
    heads = (Head(scale=scale, class_prior="estimated", prior_weight=scale) for scale in both)
    with_tensors, with_numbers = (trajectory(support, labels, query, head=head, steps=4) for head in heads)
    torch.testing.assert_close(with_tensors, with_numbers, rtol=1e-10, atol=1e-10)


def test_every_step_has_its_number_and_further_ones_the_last():
    support, labels, query, _ = clusters((3, 1, 4), (3, 3, 3), 30)
    scales, weights = (1.0, 0.5, 2.0), (1.0, -1.0, 0.0)
    head = Head(scale=scales, class_prior="estimated", prior_weight=weights)
    steps = list(islice(refinement_steps(support, labels, query, head=head), 5))
    assert [step.scale for step in steps] == [1, 0.5, 2, 2, 2]
    for step, before, weight in zip(steps[1:], steps, (-1, 0, 0, 0)):
        torch.testing.assert_close(step.log_prior, weight * (0.5 / 3 + 0.5 * before.responsibilities.mean(0)).log())


def test_a_learning_head_of_several_steps_starts_as_the_paper_s():
    episode, model, papers = episode_of_noise(), untrained(LEARNED_STEPS), untrained("support_and_query")
    with torch.no_grad():
        assert torch.equal(model(episode, steps=6), papers(episode, steps=6))
    cross_entropy(model.train()(episode, steps=3)[-1], episode.query_labels).backward()
    assert model.head_numbers["scale"].grad[:4].abs().min() > 0 and model.head_numbers["scale"].grad[4] == 0
    assert model.head_numbers["prior_weight"].grad[1:4].abs().min() > 0


def test_a_learning_head_starts_as_the_paper_s_and_learns_with_the_networks():
    episode, model, papers = episode_of_noise(), untrained(LEARNED_SCALE), untrained("support_and_query")
    assert model.head == papers.head == Head()
    shared = {name: value for name, value in model.state_dict().items() if not name.startswith("head_numbers.")}
    torch.testing.assert_close(shared, dict(papers.state_dict()), rtol=0, atol=0)
    with torch.no_grad():
        assert torch.equal(model(episode, steps=2), papers(episode, steps=2))

    cross_entropy(model.train()(episode, steps=0)[0], episode.query_labels).backward()
    exponent = model.head_numbers["scale"]
    assert exponent.grad.abs() > 0
    assert any(parameter.grad.abs().max() > 0 for parameter in model.film_generator.parameters())
    with torch.no_grad():
        exponent -= 5 * exponent.grad.sign()  # so long a step would make the number itself negative
    scale = model.eval().head.scale
    assert isinstance(scale, float) and 0 < scale != 1


def test_the_paper_s_models_have_no_further_weights():
    assert not any(training.learned for training in TRAININGS.values())
    assert not any(name.startswith("head_numbers") for name in untrained("support_and_query").state_dict())
    assert not VARIANTS.keys() & FURTHER_VARIANTS.keys() and not TRAININGS.keys() & FURTHER_TRAININGS.keys()
    assert {variant.training for variant in FURTHER_VARIANTS.values()} == {"support_and_query", *FURTHER_TRAININGS}


@pytest.mark.parametrize("embedding", ["support", "support_and_query"])
def test_half_the_scale_stands_between_the_paper_s_head_and_the_mixture_s(embedding):
    paper, half, mixture = (ALL_TRAININGS[embedding + suffix] for suffix in ("", "_half_scale", "_log_determinant"))
    assert [row.head.scale for row in (paper, half, mixture)] == [1, 0.5, 0.5]
    assert [row.head.log_determinant for row in (paper, half, mixture)] == [False, False, True]
    assert len({row.task_embedding for row in (paper, half, mixture)}) == 1
