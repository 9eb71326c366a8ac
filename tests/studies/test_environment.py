"""pyproject.toml, constraints.txt and environment.yml must name the same packages at the same versions."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
# Where conda-forge calls it otherwise.
CONDA_NAMES = {"playwright": "playwright-python", "snakemake": "snakemake-minimal", "torch": "pytorch"}
# Where a package's module is called otherwise.
MODULE_NAMES = {"pillow": "PIL", "pyyaml": "yaml", "scikit-learn": "sklearn"}


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements():
    """Name and lowest version of everything that pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["suite"], *extras["test"]]
    found = {}
    for line in lines:
        name, lowest = re.fullmatch(r"([A-Za-z0-9._-]+)(?:>=([0-9.]+))?", line).groups()
        found[normal(name)] = lowest
    assert len(found) == len(lines), "named twice"
    return found


def pins():
    """Version of everything in constraints.txt."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    found = dict(re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.]+)", line).groups() for line in lines)
    assert len(found) == len(lines), "pinned twice"
    return {normal(name): version for name, version in found.items()}


def conda():
    """Version of everything in environment.yml."""
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    packages = [line for line in environment["dependencies"] if isinstance(line, str)]
    assert environment["dependencies"][-1] == {"pip": ["-e ."]}
    assert packages[0] == "python>=3.11" and packages[-1] == "pip"
    return dict(line.split("=") for line in packages[1:-1])


def numbers(version):
    return tuple(int(part) for part in re.findall(r"\d+", version))


def test_every_requirement_is_pinned_high_enough():
    for name, lowest in requirements().items():
        assert name in pins(), f"{name} is not in constraints.txt"
        assert not lowest or numbers(pins()[name]) >= numbers(lowest)


def test_conda_gets_the_same_packages_at_the_same_versions():
    expected = {CONDA_NAMES.get(name, name): pins()[name] for name in requirements()}
    assert conda() == expected


def test_the_library_alone_imports_only_what_the_slim_install_brings():
    """Widgets and studies need the suite; the other rooms may use it inside functions only."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    slim = [re.match(r"[a-z0-9-]+", line).group() for line in project["dependencies"]]
    known = {MODULE_NAMES.get(name, name) for name in slim} | sys.stdlib_module_names | {"tcnaps"}
    foreign = []
    for path in sorted((ROOT / "tcnaps").rglob("*.py")):
        if path.relative_to(ROOT / "tcnaps").parts[0] not in ("widgets", "studies"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.Import | ast.ImportFrom):
                    names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                    foreign += [(path.name, name) for name in names if name.split(".")[0] not in known]
    assert not foreign
