"""What the notebooks declare about themselves, in their metadata under `tcnaps`: the one place that says what they do.

    "tcnaps": {
      "target": "figures",                              the target of `make` that runs it; null: none, it is interactive
      "per": "study",                                   or "replicate" or "training": how often it runs
      "settings": "figures",                            the sections of a study that it reads, a name of
                                                        `tcnaps.config.dependencies.JOBS`
      "reads": {
        "rows": ["support", "support_and_query"],       trainings whose rows of evaluations it reads, or "all"
        "checkpoints": "all",                           or names of trainings; the backbone comes with them
        "images": "tested"                              of the datasets that are tested on, or "all", or null
      },
      "shown": [{"trainings": ["support"], "kinds": ["fixed"], "parameter": "evaluation"}],
      "writes": {"figures": ["accuracy"], "tables": ["accuracy.csv"]}
    }

`shown` lists the evaluations that a study must have, or the notebook has nothing to show; see `Need`. Trainings in
`reads` that a study does not have are left out.
"""

import ast
import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from tcnaps.config import Study, UserError, project_root
from tcnaps.config.dependencies import JOBS
from tcnaps.config.errors import nearest
from tcnaps.config.fingerprint import code_cells, parse
from tcnaps.config.settings import Evaluation

Target = Literal["figures", "rivals", "active", "differences"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Need(_Section):
    """Evaluations that a study must have.

    Attributes:
        trainings: the evaluation names all of these.
        of_study: the evaluation names all of these that the study has, and the study has at least one.
        kinds: of protocol; the first kind is preferred.
        before_training: whether the networks are evaluated before meta-training.
        shot: of a fixed protocol.
        differ_in: there are two such evaluations whose protocols differ in this setting alone.
        same_protocol_as: a parameter that an earlier need has set to an evaluation.
        smallest: prefer the evaluation with the fewest images per class.
        parameter: the notebook's parameter that is set to the evaluation's name.
        most: set the parameter to a list of at most this many names.
    """

    trainings: tuple[str, ...] = ()
    of_study: tuple[str, ...] = ()
    kinds: tuple[Literal["variable", "fixed"], ...] = ("variable", "fixed")
    before_training: bool = False
    shot: int | None = None
    differ_in: str | None = None
    same_protocol_as: str | None = None
    smallest: bool = False
    parameter: str | None = None
    most: int | None = None


class Reads(_Section):
    """What a notebook reads besides the study's YAML."""

    rows: tuple[str, ...] | Literal["all"] = ()
    checkpoints: tuple[str, ...] | Literal["all"] = ()
    images: Literal["tested", "all"] | None = None


class Writes(_Section):
    """What a notebook writes: figures without their ending, tables as files below results/<study>."""

    figures: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


class Declaration(_Section):
    """The metadata of one notebook; the top of this file explains the keys."""

    target: Target | None
    per: Literal["study", "replicate", "training"] = "study"
    settings: str | None = None
    reads: Reads = Reads()
    shown: tuple[Need | tuple[Need, ...], ...] = ()
    writes: Writes = Writes()


@dataclass(frozen=True)
class Notebook:
    """A notebook and what it declares.

    Attributes:
        name: of the file without its ending, such as "05-accuracy".
        title: its first heading.
        target: the target of `make` that runs it; None where it is interactive.
        figures: names below figures/<study>, without ending. "{training}" stands for the training's name.
        tables: names below results/<study>.
        shown: for each need its alternatives.
        parameters: their default values by name.
    """

    path: Path
    name: str
    title: str
    target: str | None
    figures: tuple[str, ...]
    tables: tuple[str, ...]
    per: str
    settings: str | None
    reads: Reads
    shown: tuple[tuple[Need, ...], ...]
    parameters: dict[str, object]

    @property
    def rule(self) -> str:
        """The name of its rule in the Snakefile, such as "class_recall"."""
        return self.name.partition("-")[2].replace("-", "_")


def notebooks(folder: Path | None = None) -> dict[str, Notebook]:
    """All notebooks of a folder by name, in order; the default is the project's notebooks/.

    Raises:
        UserError: a notebook declares nothing, or something that is wrong.
    """
    folder = folder or project_root() / "notebooks"
    return {path.stem: _notebook(path) for path in sorted(folder.glob("*.ipynb"))}


def shown(study: Study, folder: Path | None = None) -> dict[str, dict[str, object]]:
    """The notebooks in which a study has something to show, with the parameters to give them.

    Raises:
        UserError: as for `notebooks`.
    """
    parameters = {name: _parameters_for(study, notebook) for name, notebook in notebooks(folder).items()}
    return {name: values for name, values in parameters.items() if values is not None}


def parameters_of(path: Path) -> dict[str, object]:
    """Names and default values of a notebook's parameters; None where the default is not a literal.

    Raises:
        UserError: there is no such notebook, or not exactly one cell tagged `parameters`.
    """
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


def _notebook(path: Path) -> Notebook:
    parameters = parameters_of(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    headings = [line for line in "".join(content["cells"][0]["source"]).splitlines() if line.startswith("# ")]
    if "tcnaps" not in content["metadata"]:
        raise UserError(f"{path}: the metadata has no key 'tcnaps', which says what the notebook reads and writes.")
    try:
        declared = Declaration.model_validate(content["metadata"]["tcnaps"])
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, ("tcnaps", *first["loc"])))
        raise UserError(f"{path}: metadata, {key}: {first['msg']}") from None
    if declared.target and declared.settings not in JOBS:
        raise UserError(
            f"{path}: metadata, tcnaps.settings: '{declared.settings}'{nearest(str(declared.settings), JOBS)}"
        )
    needs = tuple(need if isinstance(need, tuple) else (need,) for need in declared.shown)
    for parameter in (need.parameter for alternatives in needs for need in alternatives):
        if parameter and parameter not in parameters:
            raise UserError(
                f"{path}: metadata, tcnaps.shown: no parameter '{parameter}'{nearest(parameter, parameters)}"
            )
    return Notebook(
        path=path,
        name=path.stem,
        title=headings[0].removeprefix("# ") if headings else path.stem,
        target=declared.target,
        figures=declared.writes.figures,
        tables=declared.writes.tables,
        per=declared.per,
        settings=declared.settings,
        reads=declared.reads,
        shown=needs,
        parameters=parameters,
    )


def _parameters_for(study: Study, notebook: Notebook) -> dict[str, object] | None:
    """The parameters that a notebook's needs set; None where one of them is not met."""
    values: dict[str, object] = {}
    for alternatives in notebook.shown:
        candidates = ((need, _evaluations(study, need, values)) for need in alternatives)
        need, names = next(((need, names) for need, names in candidates if names), (None, []))
        if need is None:
            return None
        if need.parameter:
            values[need.parameter] = names[: need.most] if need.most else names[0]
    return values


def _evaluations(study: Study, need: Need, values: dict[str, object]) -> list[str]:
    """Names of a study's evaluations that meet a need, the preferred one first."""
    of_study = [training for training in need.of_study if training in study.trainings]
    if need.of_study and not of_study:
        return []
    same_as = study.evaluations[values[need.same_protocol_as]].protocol if need.same_protocol_as else None
    evaluations = {
        name: evaluation
        for kind in need.kinds
        for name, evaluation in study.evaluations.items()
        if evaluation.protocol.kind == kind
        and {*need.trainings, *of_study} <= set(evaluation.trainings)
        and evaluation.before_training == need.before_training
        and need.shot in (None, getattr(evaluation.protocol, "shot", None))
        and same_as in (None, evaluation.protocol)
    }
    if need.differ_in and not _differ_in(need.differ_in, list(evaluations.values())):
        return []
    return sorted(evaluations, key=lambda name: _size(evaluations[name])) if need.smallest else list(evaluations)


def _differ_in(setting: str, evaluations: list[Evaluation]) -> bool:
    """Whether the protocols of two evaluations differ in this setting and no other."""
    protocols = [evaluation.protocol.model_dump() for evaluation in evaluations]
    values = {(json.dumps(protocol | {setting: None}), protocol[setting]) for protocol in protocols}
    return len(values) > len({others for others, _ in values})


def _size(evaluation: Evaluation) -> tuple:
    """Orders evaluations by images per class, then ways; those with a variable protocol come last."""
    protocol = evaluation.protocol
    if protocol.kind == "variable":
        return (1, 0, 0)
    return (0, protocol.shot + protocol.queries_per_class, protocol.way)
