"""`deterministic: true`: pinned within, as before afterwards, and the very same weights whatever the threads were."""

from types import SimpleNamespace

import pytest
import torch
from small_study import blobs, small_study

from tcnaps.config.dependencies import dependencies
from tcnaps.training.determinism import deterministic, pinned
from tcnaps.training.pretraining import Classifier, ImageTable, pretraining_steps


def state():
    backends = torch.backends
    return {
        "threads": torch.get_num_threads(),
        "algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn": (backends.cudnn.deterministic, backends.cudnn.benchmark, backends.cudnn.allow_tf32),
        "mkldnn": backends.mkldnn.deterministic,
        "matmul": torch.get_float32_matmul_precision(),
        "filled": torch.utils.deterministic.fill_uninitialized_memory,
    }


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_everything_is_pinned_within_and_as_before_afterwards(threads):
    threads(2)
    before = state()
    with pytest.raises(KeyError), pinned():
        within = state()
        raise KeyError
    assert within == {
        "threads": 1,
        "algorithms": True,
        "cudnn": (True, False, False),
        "mkldnn": True,
        "matmul": "highest",
        "filled": False,
    }
    assert state() == before


def test_only_a_study_that_asks_for_it_is_pinned(threads):
    threads(2)
    number = deterministic(lambda study, more: torch.get_num_threads() + more)
    assert [number(SimpleNamespace(deterministic=pin), more=10) for pin in (True, False)] == [11, 12]


@pytest.mark.slow
def test_weights_are_the_same_for_any_number_of_threads(threads):
    study = small_study(deterministic=True, pretraining={"datasets": ["blobs"], "epochs": 1, "batch_size": 64})
    outcomes = []
    images = ImageTable([blobs("blobs", "train")], 0.0, 0)
    for number in (1, 2):
        threads(number)
        torch.manual_seed(0)
        network = Classifier(images.n_classes)
        optimiser = torch.optim.SGD(network.parameters(), 0.1)
        steps = deterministic(
            lambda study, *given: [row["loss"] for row in pretraining_steps(given[0], study, *given[1:])]
        )
        outcomes.append((steps(study, network, images, optimiser), network.state_dict()))
    assert outcomes[0][0] == outcomes[1][0]
    assert all(torch.equal(a, b) for a, b in zip(outcomes[0][1].values(), outcomes[1][1].values()))


def test_it_makes_stale_what_is_trained_and_nothing_else():
    plain, own = small_study(), small_study(deterministic=True)
    assert "deterministic" not in dependencies(plain, "pretraining")
    assert dependencies(own, "pretraining") == dependencies(plain, "pretraining") | {"deterministic": True}
    assert dependencies(own, "figures") == dependencies(plain, "figures")
