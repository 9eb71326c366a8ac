"""`deterministic: true`: pinned within, as before afterwards, and the very same weights whatever the threads were."""

from types import SimpleNamespace

import pytest
import torch
from small_study import blobs, small_study

from tcnaps.config.dependencies import dependencies
from tcnaps.training.determinism import deterministic
from tcnaps.training.pretraining import Classifier, ImageTable, pretraining_steps


def state():
    cudnn, mkldnn = torch.backends.cudnn, torch.backends.mkldnn
    return {
        "threads": torch.get_num_threads(),
        "algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn": (cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32),
        "mkldnn": mkldnn.deterministic,
    }


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_a_study_that_asks_for_it_is_pinned_within_and_nothing_is_afterwards(threads):
    threads(2)
    before, states = state(), []

    @deterministic
    def fails(study, more):
        states.append(state())
        raise KeyError(more)

    for asks in (True, False):
        with pytest.raises(KeyError, match="more"):
            fails(SimpleNamespace(deterministic=asks), more="more")
        assert state() == before
    assert states == [{"threads": 1, "algorithms": True, "cudnn": (True, False, False), "mkldnn": True}, before]


@pytest.mark.slow
def test_weights_are_the_same_for_any_number_of_threads(threads):
    study = small_study(deterministic=True, pretraining={"datasets": ["blobs"], "epochs": 1, "batch_size": 64})
    images = ImageTable([blobs("blobs", "train")], 0.0, 0)

    @deterministic
    def trained(study):
        torch.manual_seed(0)
        network = Classifier(images.n_classes)
        optimiser = torch.optim.SGD(network.parameters(), 0.1)
        losses = [row["loss"] for row in pretraining_steps(network, study, images, optimiser)]
        return losses, network.state_dict()

    outcomes = [(threads(number), trained(study))[1] for number in (1, 2)]
    assert outcomes[0][0] == outcomes[1][0]
    assert all(torch.equal(a, b) for a, b in zip(outcomes[0][1].values(), outcomes[1][1].values()))


def test_it_makes_stale_what_is_trained_and_nothing_else():
    plain, own = small_study(), small_study(deterministic=True)
    assert "deterministic" not in dependencies(plain, "pretraining")
    assert dependencies(own, "pretraining") == dependencies(plain, "pretraining") | {"deterministic": True}
    assert dependencies(own, "figures") == dependencies(plain, "figures")
