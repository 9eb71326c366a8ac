"""Both ways in which episodes are clustered without gradients, for tests whose episodes are all small."""

import pytest

from tcnaps.method.fast import strategies


@pytest.fixture(scope="module", params=["few images", "many images"])
def each_strategy(request):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "many images":
            patch.setattr(strategies, "FEW", 0)
        yield
