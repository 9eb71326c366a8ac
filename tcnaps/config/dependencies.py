"""What each kind of job of a study depends on: the one authority on what is stale.

The Snakefile and the keys inside checkpoints and row files are both made of `dependencies`, so that `make` and a
notebook run by hand agree on what has to be made again.
"""

from pathlib import Path

from tcnaps.config.fingerprint import HOME, code_fingerprint
from tcnaps.config.storage import digest_of
from tcnaps.config.study import Study
from tcnaps.method.variants import ALL_TRAININGS

# Rooms and modules that change no weight and no prediction. They read the YAML, fetch pixels (whose digests count
# instead), draw, watch, or run the others.
WITHOUT_RESULT = (
    "tcnaps.config",
    "tcnaps.data",
    "tcnaps.episodes.loading",
    "tcnaps.training.watching",
    "tcnaps.figures",
    "tcnaps_suite.widgets",
    "tcnaps_suite.workflow",
)
NETWORKS = ("seed", "image_size", "precision", "arithmetic", "pixel_range", "task_encoder", "clustering")
# Of every kind of job: the module that does it, and the sections of the study that it reads.
JOBS = {
    "pretraining": (
        "tcnaps/training/pretraining.py",
        ("seed", "image_size", "precision", "pixel_range", "pretraining"),
    ),
    "meta_training": ("tcnaps/training/meta_training.py", (*NETWORKS, "meta_training")),
    "evaluation": ("tcnaps/evaluation/evaluate.py", NETWORKS),
    "importing": ("tcnaps/training/released.py", ("imported", "task_encoder")),
    "data": (None, ("image_size", "datasets")),
    "soft_k_means": (None, (*NETWORKS, "refinement")),
    "figures": (None, ("seed", "replicates", "refinement", "statistics", "evaluations", "datasets")),
    "differences": (None, (*NETWORKS, "pretraining", "meta_training", "refinement", "evaluations", "datasets")),
}


def dependencies(study: Study, job: str, training: str = "", evaluation: str = "", dataset: str = "") -> dict:
    """Everything but images and other jobs' results that decides what a job computes, ready for JSON.

    Args:
        job: a name of `JOBS`.
        training: of a meta-training or an evaluation.
        evaluation: of an evaluation, its name in the study.
        dataset: of an evaluation, the one that is tested on.
    """
    module, sections = JOBS[job]
    values = study.model_dump(mode="json")
    found = {"job": job, **{name: values[name] for name in sections}}
    if module is not None:
        found["code"] = code_fingerprint([HOME / module], WITHOUT_RESULT)
        if study.deterministic:
            found["deterministic"] = True
    if training:
        found["training"] = training
    if job == "pretraining":
        found["seed"] = study.backbone_seed
    if job == "meta_training":
        found["training_seed"] = study.training_seed
    # Only the "+" trainings see the refinement loop before they are tested, or all where validation refines.
    if job == "meta_training" and (
        ALL_TRAININGS[training].refinement_in_training or study.meta_training.validate_refined
    ):
        found["limits"] = list(study.refinement.limits)
    if job == "evaluation":
        asked = values["evaluations"][evaluation]
        found |= {"evaluation": evaluation, "recorded_steps": study.refinement.recorded_steps}
        found |= {key: asked[key] for key in ("protocol", "episodes", "before_training")}
        found |= {"dataset": dataset, "domain": study.datasets[dataset].domain}
        if asked["before_training"]:
            found["training_seed"] = study.training_seed
    return found


def job_key(inputs: list[str], study: Study, job: str, **named: str) -> str:
    """A digest of a job's dependencies and of its inputs' digests (images, checkpoints), in their order."""
    return digest_of([dependencies(study, job, **named), inputs])


def notebook_key(notebook: str | Path, jobs: list[dict], more: object = None) -> str:
    """A digest of a notebook's code and of the dependencies of the jobs that it does, for the Snakefile.

    A changed figure style makes only those notebooks stale that do nothing but draw: training and evaluation do not
    run again for it.
    """
    draws = not any("code" in job for job in jobs)
    without = [name for name in WITHOUT_RESULT if not (draws and name == "tcnaps.figures")]
    return digest_of([code_fingerprint([notebook], without), jobs, more])
