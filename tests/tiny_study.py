"""A study of a few episodes, which every notebook can be run on, and a project in which it is made."""

import shutil
from pathlib import Path

import yaml
from blob_project import write_pictures

from tcnaps.method.variants import TRAININGS

ROOT = Path(__file__).parents[1]
STUDY_FILE = "configs/tiny.yaml"

PROTOCOL = {"kind": "variable", "maximum_way": 6, "maximum_support_size": 12, "queries_per_class": 3}
DATASETS = {"textures": "in", "digits": "out"}
VARIABLE = {"protocol": PROTOCOL, "datasets": list(DATASETS), "episodes": 2, "trainings": list(TRAININGS)}
TWO = {"datasets": list(DATASETS), "episodes": 2, "trainings": ["support", "support_and_query"]}
ONE_SHOT = {n: {"kind": "fixed", "way": 5, "shot": 1, "queries_per_class": n} for n in (3, 6)}
ONE_EPOCH = {"epochs": 1, "schedule": "one cycle", "batch_size": 40, "valid_fraction": 0.15}
ONE_STEP = {"episodes": 2, "episodes_per_step": 1, "validate_every": 1, "validation_episodes": 2}
STUDY = {
    "name": "tiny",
    "image_size": 32,
    "datasets": {name: {"source": "folder", "domain": d, "path": f"pictures/{name}"} for name, d in DATASETS.items()},
    "pretraining": {"datasets": ["textures"], **ONE_EPOCH},
    "meta_training": {"datasets": ["textures"], "protocol": PROTOCOL, "validation_datasets": ["textures"], **ONE_STEP},
    "evaluations": {
        "variable": VARIABLE,
        "variable-before-training": TWO | {"protocol": PROTOCOL, "before_training": True},
        **{f"5-way-1-shot-{n}": TWO | {"protocol": protocol} for n, protocol in ONE_SHOT.items()},
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
    from untrained import write_training

    from tcnaps.evaluation.evaluate import evaluate
    from tcnaps.training.meta_training import meta_train
    from tcnaps.training.pretraining import pretrain

    pretrain(study)
    meta_train(study, "support_and_query")
    for training in study.trainings:
        if training != "support_and_query":
            write_training(study, training)
        evaluate(study, training)
