# Every figure and table of a study, from its YAML:
#
#   make figures STUDY=configs/miniature.yaml
#
# which prepares the study's data first (python -m tcnaps_suite.workflow.prepare) and then runs
#
#   snakemake --cores 2 --config study=configs/miniature.yaml device=cpu workers=0 processes=1
#
# data ─► 02-pretrain ─► 03-meta-train (per training) ─► 04-evaluate (per training) ─► 05 … 10, 17, 18, the figures
#    └─► 00-data                     └─► 01-soft-k-means
#
# Where a study has several replicates, 02 to 04 run for each; files of those after the first lie in replicate-<number>/.
#
# A job is stale when its inputs changed, or its `key`: a digest of the code that it runs (not comments, not prose, not
# outputs saved by JupyterLab), of the values of the YAML that it reads (tcnaps.config.dependencies) and of its images.
# So the notebooks are `ancient` inputs.
#
# Resources are what a cluster is asked for (profiles/). They come from the study, its data's sizes (`sizes`, which
# tcnaps_suite.workflow.run finds out) and the times of the last run; tcnaps_suite/workflow/estimate.py holds the measured values.

import json
import sys
from functools import partial
from itertools import combinations, product
from pathlib import Path

from snakemake.exceptions import WorkflowError

from tcnaps.config import UserError, load_study
from tcnaps.config.dependencies import dependencies, notebook_key
from tcnaps.method.variants import FURTHER_TRAININGS, TRAININGS
from tcnaps_suite.workflow.estimate import asks, last_times

STUDY = config.get("study", "configs/miniature.yaml")
PYTHON = sys.executable
try:
    study = load_study(STUDY)
except UserError as error:
    raise WorkflowError(str(error)) from None
RESULTS, FIGURES = f"results/{study.name}", f"figures/{study.name}"
RUN = ("exec {PYTHON:q} -m tcnaps_suite.workflow.batch notebook --quiet --parent $PPID {input.notebook:q} {log.notebook:q} "
       "-p study_file {STUDY:q}")
# Where and how a network runs is no part of what it computes: it makes nothing stale.
PROCESSES = int(config.get("processes", 1))
IN_ONE_PROCESS = f"-p device {config.get('device', 'cpu')} -p workers {int(config.get('workers', 0))}"
DEVICE = f"{IN_ONE_PROCESS} -p processes {PROCESSES}"
RUN_ON_DEVICE = RUN + " {DEVICE}"
REPLICATE = " -p replicate {params.replicate}"
RUN_TRAINING = RUN_ON_DEVICE + " -p training {params.training}" + REPLICATE
SIZES = {name: {split: tuple(map(int, numbers)) for split, numbers in splits.items()}  # which Snakemake reads as text
         for name, splits in config.get("sizes", {}).items()}
ASKS = partial(asks, study, sizes=SIZES, times=last_times(study, SIZES), device=config.get("device", "cpu"), processes=PROCESSES)


def notebook(name):
    return ancient(f"notebooks/{name}.ipynb")


def executed(name, replicate=study):
    return f"{below('results', replicate)}/notebooks/{name}.ipynb"


def below(folder, replicate):
    """Where a replicate's files lie: results/<study> or figures/<study>, and below it for those after the first."""
    return str(getattr(replicate, f"{folder}_folder").relative_to(Path.cwd()))


def checkpoint(name, replicate=study):
    if name == "backbone" and not replicate.replicate_backbone:
        replicate = study
    return f"{below('results', replicate)}/checkpoints/{name}.safetensors"


def suffix(replicate):
    return f"_replicate_{replicate.replicate}" if replicate.replicate else ""


def key(name, *jobs, images=(), **more):
    """What a notebook depends on besides its inputs; `images`: the datasets that it reads images of."""
    prepared = {dataset: Path(f"{RESULTS}/.ready/{dataset}") for dataset in images}
    digests = {dataset: file.read_text() if file.exists() else None for dataset, file in sorted(prepared.items())}
    try:
        return notebook_key(f"notebooks/{name}.ipynb", list(jobs), [digests, more])
    except UserError as error:
        raise WorkflowError(str(error)) from None


def evaluation_jobs(training, replicate):
    """What one training's evaluations depend on, one entry per file of rows."""
    return [dependencies(replicate, "evaluation", training, name, dataset)
            for name, evaluation in study.evaluations.items() if training in evaluation.trainings
            for dataset in evaluation.datasets]


def n_evaluations(training):
    return sum(training in evaluation.trainings for evaluation in study.evaluations.values())


def figures(*names, replicate=study):
    return [f"{below('figures', replicate)}/{name}.{kind}" for name in names for kind in ("png", "pdf")]


def evaluation_with(*trainings, kinds=("variable", "fixed")):
    """The first evaluation of all these trainings, of the first kind that there is; None if there is none."""
    return next((name for kind in kinds for name in study.evaluations_of(trainings, kind)), None)


REPLICATES = [study.of_replicate(number) for number in range(len(study.seeds))]
EVALUATED = [training for training in study.trainings if n_evaluations(training)]
COMPARED = ["support", "support_and_query"]       # the trainings of Simple and Transductive CNAPS
FIXED_EVALUATIONS = study.evaluations_of(["support_and_query"], "fixed")
FIXED = [evaluation.protocol for evaluation in FIXED_EVALUATIONS.values()]
SMALLEST = min(FIXED_EVALUATIONS, default=evaluation_with("support_and_query"),  # of the fewest images per class
               key=lambda name: (FIXED_EVALUATIONS[name].protocol.shot + FIXED_EVALUATIONS[name].protocol.queries_per_class,
                                 FIXED_EVALUATIONS[name].protocol.way))
TESTED = study.tested_on("support_and_query")
TOY = figures("soft-k-means-toy", "soft-k-means-episode", "episode-images", "softmax-confidence",
              "softmax-scale") if SMALLEST else []

# The figure notebooks that this study has something to show in: the trainings whose rows they read, the evaluations
# that they show where they show some, by parameter, and what they write.
SHOWN = {}
if evaluation_with(*COMPARED, kinds=["fixed"]):
    SHOWN["05-accuracy"] = (COMPARED, {}, ["accuracy", "gain"],
                            ["accuracy.csv", "fixed-way-and-shot.csv", "gain-at-1-shot.csv", "headline.json"])
if shown := evaluation_with(*TRAININGS):
    SHOWN["06-ablations"] = (TRAININGS, {"evaluation": shown}, ["ablations"], ["ablations.csv"])
if shown := evaluation_with(*COMPARED):
    SHOWN["07-class-recall"] = (COMPARED, {"evaluation": shown}, ["class-recall", "class-recall-gain"], ["class-recall.csv"])
if shown := evaluation_with("support_and_query"):
    SHOWN["08-refinement-steps"] = (["support_and_query"], {"evaluation": shown},
                                    ["refinement-steps", "accuracy-by-step"], ["refinement-steps.csv", "refinement-table.csv"])
if any(a.queries_per_class != b.queries_per_class and (a.way, a.shot) == (b.way, b.shot)
       for a, b in combinations(FIXED, 2)):
    SHOWN["09-number-of-queries"] = (["support_and_query"], {}, ["number-of-queries"], ["number-of-queries.csv"])
if shown := evaluation_with(kinds=["variable"]):
    SHOWN["10-ways-and-shots"] = (study.evaluations[shown].trainings[:1], {"evaluation": shown}, ["ways-and-shots"],
                                  ["ways.csv", "shots.csv"])
if evaluation_with("support_and_query", kinds=["variable"]) or any(
        e.protocol.shot == 1 for e in study.evaluations_of(COMPARED, "fixed").values()):
    SHOWN["17-claims"] = (EVALUATED, {}, ["claims"], ["claims.csv", "claims.md"])
HEADS = ["support_and_query", *(training for training in FURTHER_TRAININGS if training in EVALUATED)]
if len(HEADS) > 1 and evaluation_with(*HEADS):
    SHOWN["26-heads"] = (HEADS, {}, ["heads", "heads-and-scales"], ["heads.csv", "learned-numbers.csv"])
for start, untrained in study.evaluations.items():
    again = [name for name, evaluation in study.evaluations.items() if evaluation.protocol == untrained.protocol
             and set(COMPARED) <= set(evaluation.trainings) and not evaluation.before_training]
    if untrained.before_training and set(COMPARED) <= set(untrained.trainings) and again:
        SHOWN["18-before-and-after"] = (COMPARED, {"start": start, "evaluation": again[0]},
                                        ["gain-of-meta-training", "reliability"],
                                        ["gain-of-meta-training.csv", "reliability.csv"])


rule all:
    input:
        [figures(*drawn) for _, _, drawn, _ in SHOWN.values()],
        [f"{RESULTS}/{table}" for _, _, _, tables in SHOWN.values() for table in tables],
        [f"{below('results', replicate)}/rows/{training}.json" for training in EVALUATED for replicate in REPLICATES],
        figures("data"),
        TOY,


rule data:
    input:
        notebook=notebook("00-data"),
    output:
        figures("data"),
        f"{RESULTS}/data.csv",
    params:
        key=key("00-data", dependencies(study, "data"), images=study.datasets),
    log:
        notebook=executed("00-data"),
    resources:
        **ASKS("data"),
    shell:
        RUN


if study.imported:
    rule import_checkpoints:
        output:
            sorted({checkpoint(name) for name in ("backbone", *study.imported)}),
        params:
            key=json.dumps([dependencies(study, "importing"),
                            [[file.stat().st_size, file.stat().st_mtime] if file.exists() else None
                             for file in map(Path, study.imported.values())]]),
        resources:
            **ASKS("import_checkpoints"),
        shell:
            "exec {PYTHON:q} -m tcnaps.training.released import --study {STUDY:q}"
else:
    for replicate in REPLICATES if study.replicate_backbone else [study]:
        rule:
            name:
                f"pretrain{suffix(replicate)}"
            input:
                notebook=notebook("02-pretrain"),
            output:
                checkpoint("backbone", replicate),
                f"{below('results', replicate)}/pretraining.csv",
                figures("pretraining", replicate=replicate),
            params:
                key=key("02-pretrain", dependencies(replicate, "pretraining"), images=study.pretraining.datasets),
                replicate=replicate.replicate,
            log:
                notebook=executed("02-pretrain", replicate),
            threads: max(PROCESSES, 2 if len(REPLICATES) == 1 else 1)  # several run side by side
            resources:
                **ASKS(f"pretrain{suffix(replicate)}", threads=2 if len(REPLICATES) == 1 else 1),
            shell:
                RUN_ON_DEVICE + REPLICATE


for training, replicate in product([name for name in study.trainings if name not in study.imported], REPLICATES):
    rule:
        name:
            f"meta_train_{training}{suffix(replicate)}"
        input:
            backbone=checkpoint("backbone", replicate),
            notebook=notebook("03-meta-train"),
        output:
            checkpoint(training, replicate),
            f"{below('results', replicate)}/meta-training/{training}.csv",
            figures(f"meta-training/{training}", replicate=replicate),
        params:
            key=key("03-meta-train", dependencies(replicate, "meta_training", training),
                    images=[*study.meta_training.datasets, *study.meta_training.validation_datasets]),
            training=training,
            replicate=replicate.replicate,
        log:
            notebook=executed(f"03-meta-train-{training}", replicate),
        # Those with most to evaluate first, so that nothing has to wait for them at the end.
        priority: n_evaluations(training)
        threads: PROCESSES
        resources:
            **ASKS(f"meta_train_{training}{suffix(replicate)}"),
        shell:
            RUN_TRAINING


for training, replicate in product(EVALUATED, REPLICATES):
    rule:
        name:
            f"evaluate_{training}{suffix(replicate)}"
        input:
            backbone=checkpoint("backbone", replicate),
            checkpoint=checkpoint(training, replicate),
            notebook=notebook("04-evaluate"),
        output:
            f"{below('results', replicate)}/rows/{training}.json",
        params:
            key=key("04-evaluate", *evaluation_jobs(training, replicate), images=study.tested_on(training)),
            training=training,
            replicate=replicate.replicate,
        log:
            notebook=executed(f"04-evaluate-{training}", replicate),
        priority: n_evaluations(training)
        threads: PROCESSES
        resources:
            **ASKS(f"evaluate_{training}{suffix(replicate)}"),
        shell:
            RUN_TRAINING


if TOY:
    rule soft_k_means:
        input:
            backbone=checkpoint("backbone"),
            checkpoints=[checkpoint(training) for training in ("support", "support_and_query") if training in study.trainings],
            notebook=notebook("01-soft-k-means"),
        output:
            TOY,
            f"{RESULTS}/softmax-scale.csv",
        params:
            key=key("01-soft-k-means", dependencies(study, "soft_k_means"), images=TESTED,
                    shown=study.evaluations[SMALLEST].model_dump(mode="json", include={"protocol", "datasets", "episodes"})),
            evaluation=SMALLEST,
        log:
            notebook=executed("01-soft-k-means"),
        resources:
            **ASKS("soft_k_means"),
        shell:
            RUN + " -p evaluation {params.evaluation}"


for name, (trainings, shown, drawn, tables) in SHOWN.items():
    rule:
        name:
            name.split("-", 1)[1].replace("-", "_")
        input:
            rows=[f"{below('results', replicate)}/rows/{training}.json"
                  for training in trainings for replicate in REPLICATES],
            published=sorted(map(str, Path("results/published").glob("*.csv"))),
            notebook=notebook(name),
        output:
            figures(*drawn),
            [f"{RESULTS}/{table}" for table in tables],
        params:
            key=key(name, dependencies(study, "figures"), shown=shown),
            shown=" ".join(f"-p {parameter} {evaluation}" for parameter, evaluation in shown.items()),
        log:
            notebook=executed(name),
        resources:
            **ASKS(name.split("-", 1)[1].replace("-", "_")),
        shell:
            RUN + " {params.shown}"


# Not part of `all`: it trains 14 models of its own. `make differences` asks for it.
if set(COMPARED) <= set(EVALUATED) and (shown := [
        name for name, evaluation in study.evaluations.items()
        if set(COMPARED) <= set(evaluation.trainings) and not evaluation.before_training][:2]):
    rule differences:
        input:
            checkpoints=[checkpoint(name) for name in ("backbone", *COMPARED)],
            notebook=notebook("11-differences"),
        output:
            figures("differences"),
            f"{RESULTS}/differences.csv",
        params:
            key=key("11-differences", dependencies(study, "differences"), images=study.datasets, shown=shown),
            shown=json.dumps(shown),
        log:
            notebook=executed("11-differences"),
        threads: 2
        resources:
            **ASKS("differences", threads=2),
        shell:
            RUN + " {IN_ONE_PROCESS} -p evaluations {params.shown:q}"


# Not part of `all` either: published classifiers take longer than the clustering. `make rivals` asks for the first
# four, `make active` for the others.
if TESTED:
    for name, drawn, tables in (
        ("19-rivals", ["rivals-1-shot", "rivals-5-shot"], ["rivals.csv", "rivals-episodes.csv"]),
        ("20-balance", ["balance"], ["balance.csv", "balance-episodes.csv"]),
        ("23-log-determinant", ["log-determinant-1-shot", "log-determinant-5-shot"], ["log-determinant.csv", "scales.csv"]),
        ("25-scale-in-training", ["scale-in-training"], ["scale-in-training.csv"]),
        ("21-active-learning", ["active-learning"], ["active-learning.csv", "active-learning-episodes.csv"]),
        ("22-continual-learning", ["continual-learning"], ["continual-learning.csv", "continual-learning-episodes.csv"]),
    ):
        rule:
            name:
                name.split("-", 1)[1].replace("-", "_")
            input:
                checkpoints=[checkpoint(name) for name in ("backbone", *study.trainings)],
                notebook=notebook(name),
            output:
                figures(*drawn),
                [f"{RESULTS}/{table}" for table in tables],
            params:
                key=key(name, dependencies(study, "soft_k_means"), images=TESTED),
            log:
                notebook=executed(name),
            resources:
                **ASKS(name.split("-", 1)[1].replace("-", "_")),
            shell:
                RUN
