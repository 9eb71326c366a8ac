"""What the notebooks declare about themselves, in their metadata under `tcnaps`: the one place that says what they do.

The keys are the fields of `Notebook`, from `target` on. CONTRIBUTING.md has an example.
"""

import ast
import contextlib
import json
import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from tcnaps.config import Study, UserError, project_root
from tcnaps.config.dependencies import JOBS
from tcnaps.config.errors import nearest
from tcnaps.config.fingerprint import HOME, bare_code, code_digest, module_code, parse


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Need(_Section):
    """Evaluations that a study must have: they name all `trainings` and have one of the `kinds` of protocol.

    They also name one of `datasets`, if there are any. The first kind is preferred. With `differ_in` there must be two
    that differ in this setting alone. `parameter` is set to the evaluation's name or, if `most` is given, to a list of
    at most that many names.
    """

    trainings: tuple[str, ...] = ()
    kinds: tuple[Literal["variable", "fixed"], ...] = ("variable", "fixed")
    datasets: tuple[str, ...] = ()
    shot: int | None = None
    before_training: bool = False
    differ_in: str | None = None
    parameter: str | None = None
    most: int | None = None
    protocol_of: str | None = None  # an earlier need's parameter: with the protocol of its evaluation


class Reads(_Section):
    """Trainings that a study does not have are left out."""

    rows: tuple[str, ...] | Literal["all"] = ()  # of evaluations, by the trainings' names
    checkpoints: tuple[str, ...] | Literal["all"] = ()  # of trainings, by their names; the backbone comes with them
    more_classes: bool = False  # the rows of the study that claim C8 compares with, as far as they exist
    images: Literal["tested", "all"] | None = None  # of the datasets that are tested on, or of all


class Writes(_Section):
    figures: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


class Notebook(_Section):
    """A notebook, its parameters' default values, and what its metadata declares."""

    path: Path
    title: str
    parameters: dict[str, object]
    # The target of `make` that runs it; None: it is interactive.
    target: Literal["figures", "rivals", "active", "differences"] | None
    per: Literal["study", "replicate", "training"] = "study"  # how often it runs
    settings: str | None = None  # the sections of a study that it reads, a name of `tcnaps.config.dependencies.JOBS`
    reads: Reads = Reads()
    shown: tuple[Need, ...] = ()  # evaluations that a study must have, or the notebook has nothing to show
    writes: Writes = Writes()  # names below figures/<study>, without an ending, and below results/<study>

    @property
    def name(self) -> str:
        """Such as "05-accuracy"."""
        return self.path.stem

    @property
    def rule(self) -> str:
        """The name of its rule in the Snakefile, such as "class_recall"."""
        return self.name.partition("-")[2].replace("-", "_")


def notebooks(folder: Path | None = None) -> dict[str, Notebook]:
    """All notebooks of a folder by name, in order. One that declares nothing or something wrong is a UserError."""
    folder = folder or project_root() / "notebooks"
    return {path.stem: _notebook(path) for path in sorted(folder.glob("*.ipynb"))}


def shown(study: Study, folder: Path | None = None) -> dict[str, dict[str, object]]:
    parameters = {name: _parameters_for(study, notebook) for name, notebook in notebooks(folder).items()}
    return {name: values for name, values in parameters.items() if values is not None}


def code_cells(path: str | Path) -> list[tuple[str, list[str]]]:
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
        return [("".join(cell["source"]), cell["metadata"].get("tags", [])) for cell in cells]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a notebook of format 4 ({error!r}).") from error


def notebook_code(path: str | Path) -> str:
    """The code of a notebook, and a digest of the modules that it imports. Prose and outputs do not count."""
    code = "\n".join(bare_code(source, path) for source, _ in code_cells(path))
    modules: set[str] = set()
    to_read = _imported_modules(code)
    while to_read:  # a module may import another
        modules |= to_read
        to_read = set().union(*(_imported_modules(module_code(HOME / module)) for module in to_read)) - modules
    return f"{code}\n{code_digest(*modules)}"


def parameters_of(path: Path) -> dict[str, object]:
    """Names and default values of a notebook's parameters; None where the default is not a literal."""
    tagged = [source for source, tags in code_cells(path) if "parameters" in tags]
    if len(tagged) != 1:
        raise UserError(
            f"{path} has {len(tagged) or 'no'} code cells tagged 'parameters' and needs exactly one. In "
            "JupyterLab: select the cell with the defaults, then Property Inspector, Common Tools, Cell Tags."
        )
    defaults: dict[str, object] = {}
    for node in parse(tagged[0], path).body:
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            if isinstance(target, ast.Name):
                defaults[target.id] = None
                with contextlib.suppress(ValueError, TypeError):
                    defaults[target.id] = ast.literal_eval(node.value)
    return defaults


def _imported_modules(code: str) -> set[str]:
    """Files of the modules of `tcnaps_suite` that some `bare_code` imports."""
    lists = re.findall(r"module='(tcnaps_suite[.\w]*)', names=\[(.+?)\]", code)
    names = {f"{module}.{name}" for module, part in lists for name in re.findall(r"\bname='(\w+)'", part)}
    names |= set(re.findall(r"tcnaps_suite\.[.\w]+", code))
    return {file for name in names if (HOME / (file := f"{name.replace('.', '/')}.py")).is_file()}


def _notebook(path: Path) -> Notebook:
    parameters = parameters_of(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    title = "".join(content["cells"][0]["source"]).partition("\n")[0].removeprefix("# ")
    if "tcnaps" not in content["metadata"]:
        raise UserError(f"{path}: the metadata has no key 'tcnaps', which says what the notebook reads and writes.")
    declared = content["metadata"]["tcnaps"] | {"path": path, "title": title, "parameters": parameters}
    try:
        notebook = Notebook.model_validate(declared)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, ("tcnaps", *first["loc"])))
        raise UserError(f"{path}: metadata, {key}: {first['msg']}") from None
    if notebook.target and notebook.settings not in JOBS:
        raise UserError(f"{path}: metadata, tcnaps.settings: '{notebook.settings}'{nearest(notebook.settings, JOBS)}")
    for name in (need.parameter for need in notebook.shown if need.parameter):
        if name not in parameters:
            raise UserError(f"{path}: metadata, tcnaps.shown: no parameter '{name}'{nearest(name, parameters)}")
    return notebook


def _parameters_for(study: Study, notebook: Notebook) -> dict[str, object] | None:
    """The parameters that a notebook's needs set; None where one of them is not met."""
    values: dict[str, object] = {}
    for need in notebook.shown:
        names = _evaluations(study, need)
        if need.protocol_of:
            wanted = study.evaluations[values[need.protocol_of]].protocol
            names = [name for name in names if study.evaluations[name].protocol == wanted]
        if not names:
            return None
        if need.parameter:
            values[need.parameter] = names[: need.most] if need.most else names[0]
    return values


def _evaluations(study: Study, need: Need) -> list[str]:
    """Names of a study's evaluations that meet a need, the preferred one first."""
    protocols = {
        name: evaluation.protocol
        for kind in need.kinds
        for name, evaluation in study.evaluations_of(need.trainings, kind, need.before_training).items()
        if (kind == "variable" or need.shot in (None, evaluation.protocol.shot))
        and (not need.datasets or set(need.datasets) & set(evaluation.datasets))
    }
    if need.differ_in:
        others = [json.dumps(own.model_dump() | {need.differ_in: None}) for own in protocols.values()]
        values = {(rest, getattr(own, need.differ_in)) for rest, own in zip(others, protocols.values())}
        if len(values) == len(set(others)):
            return []
    return list(protocols)
