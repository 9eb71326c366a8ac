"""The files of a study's jobs, as paths from the project's root, and the digest that decides whether a job is stale."""

from collections.abc import Iterable, Mapping, Sequence

from tcnaps.config import Study, load_study, project_root
from tcnaps.config.dependencies import TRAINING_CODE
from tcnaps.config.fingerprint import code_digest
from tcnaps.config.storage import digest_of
from tcnaps_suite.workflow.notebooks import Notebook, notebook_code

FIGURES_CODE = (*TRAINING_CODE, "tcnaps/data/decoding.py", "tcnaps/estimator", "tcnaps/evaluation", "tcnaps/figures")


def written(notebook: Notebook, study: Study, training: str = "") -> list[str]:
    """The figures, as PNG and PDF, and the tables that a notebook writes."""
    figures = [f"{figure}.{kind}" for figure in notebook.writes.figures for kind in ("png", "pdf")]
    files = [*(made(study, figure, "figures") for figure in figures), *(made(study, t) for t in notebook.writes.tables)]
    return [file.format(training=training) for file in files]


def made(study: Study, name: str, kind: str = "results") -> str:
    """A file of a replicate below results/ or figures/."""
    return f"{getattr(study, f'{kind}_folder').relative_to(project_root())}/{name}"


def checkpoint(study: Study, name: str) -> str:
    """The weights of a training, or of the "backbone", which replicates may share."""
    shared = name == "backbone" and not study.replicate_backbone
    return made(study.of_replicate(0) if shared else study, f"checkpoints/{name}.safetensors")


def evaluated(study: Study) -> list[str]:
    """The trainings that some evaluation of the study names."""
    return [training for training in study.trainings if study.tested_on(training)]


def inputs(notebook: Notebook, study: Study) -> list[str]:
    """The checkpoints of the first replicate and the rows of all replicates that a notebook reads."""
    checkpoints, trainings = notebook.reads.checkpoints, notebook.reads.rows
    networks = [name for name in study.trainings if checkpoints == "all" or name in checkpoints]
    replicates = [study.of_replicate(number) for number in range(len(study.seeds))]
    of_rows = [training for training in evaluated(study) if trainings == "all" or training in trainings]
    place = notebook.reads.more_classes and study.claims.more_classes
    others = load_study(place).results_folder.glob("**/rows/[!.]*.json") if place else ()
    return [
        *(checkpoint(study, name) for name in (["backbone", *networks] if checkpoints else [])),
        *(made(replicate, f"rows/{training}.json") for training in of_rows for replicate in replicates),
        *sorted(str(file.relative_to(project_root())) for file in others),
    ]


def images(notebook: Notebook, study: Study) -> list[str]:
    names = {"all": list(study.datasets), "tested": study.tested_on("support_and_query"), None: []}
    return names[notebook.reads.images]


def key(
    notebook: Notebook, study: Study, jobs: Sequence[dict], datasets: Iterable[str], parameters: Mapping | None = None
) -> str:
    """A digest of what a job depends on besides its inputs; where it changes, the job is stale.

    `jobs` come from `tcnaps.config.dependencies`; the values of `parameters` are names of evaluations. A changed figure
    style makes no training and no evaluation of the study stale.
    """
    ready = {name: project_root() / "results" / study.name / ".ready" / name for name in sorted(datasets)}
    digests = {name: file.read_text() if file.exists() else None for name, file in ready.items()}
    named = [name for value in (parameters or {}).values() for name in ([value] if isinstance(value, str) else value)]
    read = {"protocol", "datasets", "episodes"}
    evaluations = {name: study.evaluations[name].model_dump(mode="json", include=read) for name in named}
    figures_only = not any("code" in job for job in jobs)
    code = [notebook_code(notebook.path), code_digest(*FIGURES_CODE) if figures_only else ""]
    return digest_of([code, jobs, [digests, evaluations]])
