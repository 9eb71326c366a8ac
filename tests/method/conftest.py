"""All ways in which episodes are clustered: plainly, and the two fast ones, for tests whose episodes are all small."""

import pytest

from tcnaps.method import fast
from tcnaps.method.fast import strategies


@pytest.fixture(scope="module", params=["plain", "few images", "many images"])
def each_strategy(request):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain":
            patch.setattr(fast, "ENABLED", False)
        if request.param == "many images":
            patch.setattr(strategies, "FEW", 0)
        yield
