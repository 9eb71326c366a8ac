"""What every test stands on: checked shapes, one thread a process, reference values where there are any."""

import os
from pathlib import Path

# Before anything imports PyTorch: sums in another order differ in the last digits, tests run side by side.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"

import jaxtyping  # noqa: E402

# Before any import of tcnaps: from here on every annotated shape of it is checked at every call.
jaxtyping.install_import_hook(["tcnaps", "tcnaps_suite"], "beartype.beartype")

import hypothesis  # noqa: E402
import pytest  # noqa: E402
from synthetic_rows import synthetic_rows  # noqa: E402

pytest_plugins = ["trained_study"]

hypothesis.settings.register_profile("tcnaps", deadline=None, derandomize=True)
# `make fuzz`: other cases on each call, fifty times as many; tests/fuzzing.py.
hypothesis.settings.register_profile(
    "fuzz", deadline=None, max_examples=5000, print_blob=True, suppress_health_check=list(hypothesis.HealthCheck)
)
hypothesis.settings.load_profile("tcnaps")


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of values computed with the released code; not part of the project."""
    folder = Path(os.environ.get("TCNAPS_REFERENCE") or Path(__file__).parents[2] / "shared" / "reference")
    if not folder.is_dir():
        pytest.skip(f"no reference values at {folder}: set TCNAPS_REFERENCE to the folder that holds them")
    return folder


@pytest.fixture(scope="session")
def rows():
    """Rows of two trainings on three datasets."""
    return synthetic_rows()


@pytest.fixture(scope="module", params=["plain", "few images", "many images"])
def each_strategy(request):
    """All ways in which episodes are clustered: plainly, and the two fast ones, for tests of small episodes."""
    from tcnaps.method import fast
    from tcnaps.method.fast import strategies

    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain":
            patch.setattr(fast, "ENABLED", False)
        if request.param == "many images":
            patch.setattr(strategies, "FEW", 0)
        yield


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's root, empty; it is the working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long begin first, so that no process ends long after the others."""
    slow = [item.get_closest_marker("slow") is not None for item in items]
    share = {path: sum(s for item, s in zip(items, slow) if item.path == path) for path in {i.path for i in items}}
    items.sort(key=lambda item: -share[item.path])
