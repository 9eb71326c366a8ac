"""What each kind of job depends on: the one authority on what is stale. Code that reads files does not count."""

from tcnaps.config.fingerprint import code_digest
from tcnaps.config.storage import digest_of
from tcnaps.config.study import Study
from tcnaps.method.variants import ALL_TRAININGS

NETWORKS = ("seed", "image_size", "precision", "arithmetic", "pixel_range", "task_encoder", "clustering")
# Kind of job -> the sections of the study that it reads.
JOBS = {
    "pretraining": ("seed", "image_size", "precision", "pixel_range", "pretraining"),
    "meta_training": (*NETWORKS, "meta_training"),
    "evaluation": NETWORKS,
    "importing": ("imported", "task_encoder"),
    "data": ("image_size", "datasets"),
    "soft_k_means": (*NETWORKS, "refinement", "datasets"),
    "figures": ("seed", "replicates", "refinement", "evaluations", "datasets", "claims"),
    "differences": (*NETWORKS, "pretraining", "meta_training", "refinement", "evaluations", "datasets"),
}
TRAINING_CODE: tuple[str, ...] = ("tcnaps/method", "tcnaps/training", "tcnaps/episodes/sampling.py")
# Statistics are computed from rows afterwards, so evaluations depend on one module of tcnaps/evaluation alone.
CODE = dict.fromkeys(("pretraining", "meta_training", "importing"), TRAINING_CODE)
CODE["evaluation"] = (*TRAINING_CODE, "tcnaps/evaluation/evaluate.py")


def dependencies(study: Study, job: str, training: str = "", evaluation: str = "", dataset: str = "") -> dict:
    """What decides the result of a job of `JOBS`, except images and other jobs' results, as values for JSON.

    A meta-training needs `training`; an evaluation needs `training`, `evaluation` (its name) and `dataset`.
    """
    values = study.model_dump(mode="json")
    content = {"job": job, **{name: values[name] for name in JOBS[job]}}
    if job in CODE:
        content["code"] = code_digest(*CODE[job])
    if training:
        content["training"] = training
    if job == "pretraining":
        content["seed"] = study.backbone_seed
    if job == "meta_training":
        content["training_seed"] = study.training_seed
        if ALL_TRAININGS[training].refinement_in_training or study.meta_training.validate_refined:
            content["limits"] = list(study.refinement.limits)  # other trainings refine at test time only
    if job == "evaluation":
        section = values["evaluations"][evaluation]
        content |= {"evaluation": evaluation, "recorded_steps": study.refinement.recorded_steps}
        content |= {key: section[key] for key in ("protocol", "episodes", "before_training")}
        content |= {"dataset": dataset, "domain": study.datasets[dataset].domain}
        if section["before_training"]:
            content["training_seed"] = study.training_seed
    return content


def job_key(inputs: list[str], study: Study, job: str, **named: str) -> str:
    """A digest of a job's dependencies and of its inputs' digests (images, checkpoints), in their order."""
    return digest_of([dependencies(study, job, **named), inputs])
