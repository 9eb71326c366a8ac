"""What each kind of job of a study depends on: the one authority on what is stale.

The Snakefile and the keys inside checkpoints and row files are both made of `dependencies`, so that `make` and a
notebook run by hand agree on what has to be made again.
"""

from tcnaps.config.fingerprint import PACKAGE, code_fingerprint
from tcnaps.config.storage import digest_of
from tcnaps.config.study import Study
from tcnaps.method.variants import TRAININGS

# Rooms and modules that change no weight and no prediction: they read the YAML, fetch pixels, draw, or run the others.
WITHOUT_RESULT = (
    "tcnaps.config",
    "tcnaps.datasets",
    "tcnaps.episodes.loading",
    "tcnaps.figures",
    "tcnaps.widgets",
    "tcnaps.studies",
)
NETWORKS = ("seed", "image_size", "precision", "arithmetic", "pixel_range", "task_encoder", "clustering")


def dependencies(study: Study, job: str, training: str | None = None, evaluation: str | None = None) -> dict:
    """Everything but images and other jobs' results that decides what a job computes, ready for JSON.

    Args:
        job: "pretraining", "meta_training" or "evaluation".
        training: of a meta-training or an evaluation.
        evaluation: of an evaluation, its name in the study.
    """
    values = study.model_dump(mode="json")
    if job == "pretraining":
        names, more, module = (
            ("seed", "image_size", "precision", "pixel_range", "pretraining"),
            {},
            "training/pretraining.py",
        )
    elif job == "meta_training":
        # Only the "+" trainings see the refinement loop before they are tested, or all where validation refines.
        refines = TRAININGS[training].refinement_in_training or study.meta_training.validate_refined
        names = (*NETWORKS, "meta_training", *(["refinement"] if refines else []))
        more, module = {"training": training}, "training/meta_training.py"
    elif job == "evaluation":
        asked = values["evaluations"][evaluation]
        more = {"training": training, "evaluation": evaluation, "recorded_steps": study.refinement.recorded_steps}
        more |= {key: asked[key] for key in ("protocol", "episodes")}
        names, module = NETWORKS, "evaluation/evaluate.py"
    else:
        raise ValueError(f"there is no job '{job}'; jobs are pretraining, meta_training and evaluation")
    code = code_fingerprint([PACKAGE / module], without=WITHOUT_RESULT)
    return {"job": job, "code": code, **{name: values[name] for name in names}, **more}


def job_key(inputs: list[str], study: Study, job: str, **named: str) -> str:
    """A digest of a job's dependencies and of its inputs' digests (images, checkpoints), in their order."""
    return digest_of([dependencies(study, job, **named), inputs])
