# Every figure and table of a study, from its YAML:
#
#   make figures STUDY=configs/miniature.yaml
#
# which prepares the study's data first (python -m tcnaps_suite.workflow.prepare) and then runs Snakemake.
#
# data ─► 02-pretrain ─► 03-meta-train (per training) ─► 04-evaluate (per training) ─► the notebooks that draw
#    └─► 00-data                     └─► the notebooks that read checkpoints and images
#
# Where a study has several replicates, 02 to 04 run for each; files of those after the first lie in replicate-<number>/.
# What a notebook reads and writes, and the target that runs it, stand in its metadata (tcnaps_suite/workflow/notebooks.py).
#
# A job is stale when its inputs changed, or its `key`: a digest of the code that it runs (not comments, not prose, not
# outputs saved by JupyterLab), of the values of the YAML that it reads (tcnaps.config.dependencies) and of its images.
# So the notebooks are `ancient` inputs.

import json
import sys
from itertools import product
from pathlib import Path

from snakemake.exceptions import WorkflowError

from tcnaps.config import UserError, load_study
from tcnaps.config.dependencies import dependencies, notebook_key
from tcnaps_suite.workflow.notebooks import notebooks, shown

STUDY = config.get("study", "configs/miniature.yaml")
try:
    study, NOTEBOOKS = load_study(STUDY), notebooks()
    SHOWN = shown(study)
except UserError as error:
    raise WorkflowError(str(error)) from None
PYTHON = sys.executable
RESULTS = f"results/{study.name}"
RUN = ("exec {PYTHON:q} -m tcnaps_suite.workflow.batch notebook --quiet --parent $PPID {input.notebook:q} {log.notebook:q} "
       "-p study_file {STUDY:q} {params.given}")
# Where and how a network runs is no part of what it computes: it makes nothing stale.
DEVICE = {"device": config.get("device", "cpu"), "workers": config.get("workers", 0), "processes": config.get("processes", 1)}
PROCESSES = int(DEVICE["processes"])
GPUS = {"gpu": PROCESSES} if DEVICE["device"] != "cpu" else {}
# What a job asks a cluster for: megabytes, and minutes until it is stopped. A profile may say otherwise for a rule.
TRAINS = {"mem_mb": 12_000 * PROCESSES, "runtime": 1440, **GPUS}
DRAWS = {"mem_mb": 16_000, "runtime": 480}

REPLICATES = [study.of_replicate(number) for number in range(len(study.seeds))]
EVALUATED = [training for training in study.trainings if study.tested_on(training)]


def below(folder, replicate):
    """Where a replicate's files lie: results/<study> or figures/<study>, and below it for those after the first."""
    return str(getattr(replicate, f"{folder}_folder").relative_to(Path.cwd()))


def written(name, replicate=study, training=""):
    """The figures and tables that a notebook declares."""
    figures = [f"{below('figures', replicate)}/{figure}.{kind}" for figure in NOTEBOOKS[name].figures for kind in ("png", "pdf")]
    tables = [f"{below('results', replicate)}/{table}" for table in NOTEBOOKS[name].tables]
    return [file.format(training=training) for file in [*figures, *tables]]


def executed(name, replicate=study):
    return f"{below('results', replicate)}/notebooks/{name}.ipynb"


def times(rule):
    return f"{RESULTS}/times/{rule}.tsv"


def suffix(replicate):
    return f"_replicate_{replicate.replicate}" if replicate.replicate else ""


def checkpoint(name, replicate=study):
    first = name == "backbone" and not replicate.replicate_backbone
    return f"{below('results', study if first else replicate)}/checkpoints/{name}.safetensors"


def rows(training, replicate):
    return f"{below('results', replicate)}/rows/{training}.json"


def given(name, **values):
    """The parameters of a notebook, as the command line takes them; those of DEVICE if it has them."""
    values |= {parameter: value for parameter, value in DEVICE.items() if parameter in NOTEBOOKS[name].parameters}
    texts = {parameter: value if isinstance(value, str) else json.dumps(value) for parameter, value in values.items()}
    return " ".join(f"-p {parameter} '{text}'" for parameter, text in texts.items())


def key(name, *jobs, images=(), parameters=None):
    """What a notebook depends on besides its inputs; `images`: the datasets that it reads images of."""
    prepared = {dataset: Path(f"{RESULTS}/.ready/{dataset}") for dataset in images}
    digests = {dataset: file.read_text() if file.exists() else None for dataset, file in sorted(prepared.items())}
    try:
        return notebook_key(NOTEBOOKS[name].path, list(jobs), [digests, parameters])
    except UserError as error:
        raise WorkflowError(str(error)) from None


def settings_shown(parameters):
    """The settings of the evaluations that a notebook is given, which must be in its key."""
    names = [name for value in parameters.values() for name in ([value] if isinstance(value, str) else value)]
    return {name: study.evaluations[name].model_dump(mode="json", include={"protocol", "datasets", "episodes"}) for name in names}


def inputs(notebook):
    """The checkpoints and rows that a notebook reads, of those that the study has."""
    checkpoints, trainings = notebook.reads.checkpoints, notebook.reads.rows
    of_networks = ["backbone", *(name for name in study.trainings if name in checkpoints or checkpoints == "all")]
    of_rows = [training for training in EVALUATED if training in trainings or trainings == "all"]
    return [*(checkpoint(name) for name in of_networks if checkpoints),
            *(rows(training, replicate) for training in of_rows for replicate in REPLICATES)]


def run_by(target):
    """The notebooks that a target runs once for the study."""
    return [name for name in SHOWN if NOTEBOOKS[name].target == target and NOTEBOOKS[name].per == "study"]


rule all:
    input:
        [written(name) for name in run_by("figures")],
        [rows(training, replicate) for training in EVALUATED for replicate in REPLICATES],


for target in ("rivals", "active", "differences"):
    rule:
        name: f"all_{target}"
        input: [written(name) for name in run_by(target)],


if study.imported:
    rule import_checkpoints:
        output: sorted({checkpoint(name) for name in ("backbone", *study.imported)}),
        params:
            key=json.dumps([dependencies(study, "importing"),
                            [[file.stat().st_size, file.stat().st_mtime] if file.exists() else None
                             for file in map(Path, study.imported.values())]]),
        resources: **DRAWS,
        shell: "exec {PYTHON:q} -m tcnaps.training.released import --study {STUDY:q}"


for replicate in [] if study.imported else REPLICATES if study.replicate_backbone else [study]:
    rule:
        name: f"pretrain{suffix(replicate)}"
        input: notebook=ancient("notebooks/02-pretrain.ipynb"),
        output: written("02-pretrain", replicate),
        params:
            key=key("02-pretrain", dependencies(replicate, "pretraining"), images=study.pretraining.datasets),
            given=given("02-pretrain", replicate=replicate.replicate),
        log: notebook=executed("02-pretrain", replicate),
        benchmark: times(f"pretrain{suffix(replicate)}")
        threads: max(PROCESSES, 2 if len(REPLICATES) == 1 else 1)  # several run side by side
        resources: **TRAINS,
        shell: RUN


for training, replicate in product([name for name in study.trainings if name not in study.imported], REPLICATES):
    rule:
        name: f"meta_train_{training}{suffix(replicate)}"
        input:
            backbone=checkpoint("backbone", replicate),
            notebook=ancient("notebooks/03-meta-train.ipynb"),
        output: written("03-meta-train", replicate, training),
        params:
            key=key("03-meta-train", dependencies(replicate, "meta_training", training),
                    images=[*study.meta_training.datasets, *study.meta_training.validation_datasets]),
            given=given("03-meta-train", training=training, replicate=replicate.replicate),
        log: notebook=executed(f"03-meta-train-{training}", replicate),
        benchmark: times(f"meta_train_{training}{suffix(replicate)}")
        # Those with most to evaluate first, so that nothing has to wait for them at the end.
        priority: sum(training in evaluation.trainings for evaluation in study.evaluations.values())
        threads: PROCESSES
        resources: **TRAINS,
        shell: RUN


for training, replicate in product(EVALUATED, REPLICATES):
    rule:
        name: f"evaluate_{training}{suffix(replicate)}"
        input:
            backbone=checkpoint("backbone", replicate),
            checkpoint=checkpoint(training, replicate),
            notebook=ancient("notebooks/04-evaluate.ipynb"),
        output: written("04-evaluate", replicate, training),
        params:
            key=key("04-evaluate", images=study.tested_on(training), *(
                dependencies(replicate, "evaluation", training, name, dataset)
                for name, evaluation in study.evaluations.items() if training in evaluation.trainings
                for dataset in evaluation.datasets)),
            given=given("04-evaluate", training=training, replicate=replicate.replicate),
        log: notebook=executed(f"04-evaluate-{training}", replicate),
        benchmark: times(f"evaluate_{training}{suffix(replicate)}")
        threads: PROCESSES
        resources: **TRAINS,
        shell: RUN


for notebook in (NOTEBOOKS[name] for name in SHOWN if NOTEBOOKS[name].target and NOTEBOOKS[name].per == "study"):
    rule:
        name: notebook.rule
        input:
            inputs(notebook),
            published=sorted(map(str, Path("results/published").glob("*.csv"))) if notebook.reads.rows else [],
            notebook=ancient(f"notebooks/{notebook.name}.ipynb"),
        output: written(notebook.name),
        params:
            key=key(notebook.name, dependencies(study, notebook.settings), parameters=settings_shown(SHOWN[notebook.name]),
                    images={"all": study.datasets, "tested": study.tested_on("support_and_query")}.get(notebook.reads.images, ())),
            given=given(notebook.name, **SHOWN[notebook.name]),
        log: notebook=executed(notebook.name),
        benchmark: times(notebook.rule)
        resources: **(TRAINS if "device" in notebook.parameters else DRAWS),
        shell: RUN
