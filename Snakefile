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
# So the notebooks are `ancient` inputs. What a stale job made before stays (`update`) until the job has made it anew.

import json
import sys
from itertools import product
from pathlib import Path

from snakemake.jobs import Job

from tcnaps.config import load_study
from tcnaps.config.dependencies import dependencies
from tcnaps_suite.workflow.jobs import checkpoint, evaluated, images, inputs, key, made, written
from tcnaps_suite.workflow.notebooks import notebooks, shown

STUDY = config.get("study", "configs/miniature.yaml")
PYTHON = sys.executable
study, NOTEBOOKS = load_study(STUDY), notebooks()
PRETRAIN, META_TRAIN, EVALUATE = (NOTEBOOKS[name] for name in ("02-pretrain", "03-meta-train", "04-evaluate"))
SHOWN = {name: values for name, values in shown(study).items() if NOTEBOOKS[name].target and NOTEBOOKS[name].per == "study"}
REPLICATES = [study.of_replicate(number) for number in range(len(study.seeds))]

RUN = ("exec {PYTHON:q} -m tcnaps_suite.workflow.batch notebook --quiet --parent $PPID {input.notebook:q} {log.notebook:q} "
       "-p study_file {STUDY:q} {params.given} {DEVICE}")
# What differs from rule to rule is in `params`: Snakemake reads `shell` when a job runs, after these loops have ended.
# Device and number of processes must make no job stale, so these two options are not among the params.
PROCESSES = int(config.get("processes", 1))
DEVICE = " ".join(f"--if-parameter {name} {config.get(name, default)}"
                  for name, default in (("device", "cpu"), ("processes", 1)))
# What a job asks a cluster for: megabytes, and minutes until it is stopped. A profile may say otherwise for a rule.
DRAWS = {"mem_mb": 16_000, "runtime": 480}
TRAINS = {"mem_mb": 12_000 * PROCESSES, "runtime": 1440}
GPUS, GPU = ({"gpu": n} if config.get("device", "cpu") != "cpu" else {} for n in (PROCESSES, 1))


async def unless_failed(job, error=False, postprocess=Job.postprocess, **options):
    """A failed job is left as a killed one: it runs again, and what it has written stays, such as trained weights.

    Snakemake 9 would put back the files from before it, and take them for up to date, or delete what there is.
    """
    if not error:
        await postprocess(job, **options)


Job.postprocess = unless_failed


def given(**values):
    """Parameters of a notebook, as the command line takes them."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    return " ".join(f"-p {name} '{text}'" for name, text in texts.items())


def suffix(replicate):
    return f"_replicate_{replicate.replicate}" if replicate.replicate else ""


def times(rule):
    return f"results/{study.name}/times/{rule}.tsv"


def written_for(target):
    return [written(NOTEBOOKS[name], study) for name in SHOWN if NOTEBOOKS[name].target == target]


rule all:
    input:
        written_for("figures"),
        [made(replicate, f"rows/{training}.json") for training in evaluated(study) for replicate in REPLICATES],


for target in ("rivals", "active", "differences"):
    rule:
        name: f"all_{target}"
        input: written_for(target),


if study.imported:
    rule import_checkpoints:
        output: update(sorted({checkpoint(study, name) for name in ("backbone", *study.imported)})),
        params:
            key=json.dumps([dependencies(study, "importing"),
                            [[file.stat().st_size, file.stat().st_mtime] if file.exists() else None
                             for file in map(Path, study.imported.values())]]),
        resources: **DRAWS,
        shell: "exec {PYTHON:q} -m tcnaps.training.released --study {STUDY:q}"


for replicate in [] if study.imported else REPLICATES if study.replicate_backbone else [study]:
    rule:
        name: f"pretrain{suffix(replicate)}"
        input: notebook=ancient("notebooks/02-pretrain.ipynb"),
        output: update(written(PRETRAIN, replicate)),
        params:
            key=key(PRETRAIN, study, [dependencies(replicate, "pretraining")], study.pretraining.datasets),
            given=given(replicate=replicate.replicate),
        log: notebook=made(replicate, "notebooks/02-pretrain.ipynb"),
        benchmark: times(f"pretrain{suffix(replicate)}")
        threads: max(PROCESSES, 1 if len(REPLICATES) > 1 and study.replicate_backbone else 2)  # several: side by side
        resources: **TRAINS, **GPUS,
        shell: RUN


for training, replicate in product([name for name in study.trainings if name not in study.imported], REPLICATES):
    rule:
        name: f"meta_train_{training}{suffix(replicate)}"
        input:
            backbone=checkpoint(replicate, "backbone"),
            notebook=ancient("notebooks/03-meta-train.ipynb"),
        output: update(written(META_TRAIN, replicate, training)),
        params:
            key=key(META_TRAIN, study, [dependencies(replicate, "meta_training", training)],
                    {*study.meta_training.datasets, *study.meta_training.validation_datasets}),
            given=given(training=training, replicate=replicate.replicate),
        log: notebook=made(replicate, f"notebooks/03-meta-train-{training}.ipynb"),
        benchmark: times(f"meta_train_{training}{suffix(replicate)}")
        # Those with most to evaluate first, so that nothing has to wait for them at the end.
        priority: sum(training in evaluation.trainings for evaluation in study.evaluations.values())
        threads: PROCESSES
        resources: **TRAINS, **GPUS,
        shell: RUN


for training, replicate in product(evaluated(study), REPLICATES):
    rule:
        name: f"evaluate_{training}{suffix(replicate)}"
        input:
            backbone=checkpoint(replicate, "backbone"),
            checkpoint=checkpoint(replicate, training),
            notebook=ancient("notebooks/04-evaluate.ipynb"),
        output: update(written(EVALUATE, replicate, training)),
        params:
            key=key(EVALUATE, study, [dependencies(replicate, "evaluation", training, name, dataset)
                                      for name, evaluation in study.evaluations.items() if training in evaluation.trainings
                                      for dataset in evaluation.datasets], study.tested_on(training)),
            given=given(training=training, replicate=replicate.replicate),
        log: notebook=made(replicate, f"notebooks/04-evaluate-{training}.ipynb"),
        benchmark: times(f"evaluate_{training}{suffix(replicate)}")
        threads: PROCESSES
        resources: **TRAINS, **GPUS,
        shell: RUN


for notebook, parameters in ((NOTEBOOKS[name], values) for name, values in SHOWN.items()):
    rule:
        name: notebook.rule
        input:
            inputs(notebook, study),
            published=sorted(map(str, Path("results/published").glob("*.csv"))) if notebook.reads.rows else [],
            notebook=ancient(f"notebooks/{notebook.name}.ipynb"),
        output: update(written(notebook, study)),
        params:
            key=key(notebook, study, [dependencies(study, notebook.settings)], images(notebook, study), parameters),
            given=given(**parameters),
        log: notebook=made(study, f"notebooks/{notebook.name}.ipynb"),
        benchmark: times(notebook.rule)
        resources: **(DRAWS | GPU if "device" in notebook.parameters else DRAWS),
        shell: RUN
