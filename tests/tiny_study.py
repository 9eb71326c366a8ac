"""A study of a few episodes, which every notebook can be run on, and a project in which it is made."""

import shutil
from pathlib import Path

import yaml
from blob_project import write_pictures

ROOT = Path(__file__).parents[1]
STUDY_FILE = "configs/tiny.yaml"

PROTOCOL = {"kind": "variable", "maximum_way": 6, "maximum_support_size": 12, "queries_per_class": 3}
VARIABLE = {
    "protocol": PROTOCOL,
    "datasets": ["textures", "digits"],
    "episodes": 2,
    "trainings": [
        "support",
        "support_and_query",
        "support_and_query_refined",
        "support_log_determinant",
        "support_and_query_log_determinant",
        "support_and_query_log_determinant_refined",
    ],
}
STUDY = {
    "name": "tiny",
    "image_size": 32,
    "datasets": {
        "textures": {"source": "folder", "domain": "in", "path": "pictures/textures"},
        "digits": {"source": "folder", "domain": "out", "path": "pictures/digits"},
    },
    "pretraining": {
        "datasets": ["textures"],
        "epochs": 1,
        "schedule": "one cycle",
        "batch_size": 40,
        "valid_fraction": 0.15,
    },
    "meta_training": {
        "datasets": ["textures"],
        "protocol": PROTOCOL,
        "episodes": 2,
        "episodes_per_step": 1,
        "validate_every": 1,
        "validation_datasets": ["textures"],
        "validation_episodes": 2,
    },
    "evaluations": {
        "variable": VARIABLE,
        "variable-before-training": VARIABLE | {"before_training": True, "trainings": ["support", "support_and_query"]},
        **{
            f"5-way-1-shot-{n}": {
                "protocol": {"kind": "fixed", "way": 5, "shot": 1, "queries_per_class": n},
                "datasets": ["textures", "digits"],
                "trainings": ["support", "support_and_query"],
                "episodes": 2,
            }
            for n in (3, 6)
        },
    },
}


def write_project(root: Path) -> None:
    """Makes `root` a project's root with the study, its pictures and all notebooks."""
    for folder in ("notebooks", "results/published"):
        shutil.copytree(ROOT / folder, root / folder, dirs_exist_ok=True)
    shutil.copy(ROOT / "Snakefile", root)
    (root / STUDY_FILE).parent.mkdir(parents=True, exist_ok=True)
    (root / STUDY_FILE).write_text(yaml.safe_dump(STUDY, sort_keys=False))
    write_pictures(root, {"textures": ("train", "valid", "test"), "digits": ("test",)}, n_images=16)


def train_and_evaluate(study) -> None:
    """Makes what a study has: one training is done, the other networks stay as they were initialised."""
    from stepper_study import write_training

    from tcnaps.evaluation.evaluate import evaluate
    from tcnaps.training.meta_training import meta_train
    from tcnaps.training.pretraining import pretrain

    pretrain(study)
    meta_train(study, "support_and_query")
    for training in study.trainings:
        if training != "support_and_query":
            write_training(study, training)
        evaluate(study, training)
