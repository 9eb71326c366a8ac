"""A study small enough to train in a test: a few classes of coloured blobs in place of the miniature's datasets."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from tcnaps.config import Study
from tcnaps.data.image_source import ImageSource

SIZE = 32


def blobs(dataset: str, split: str, n_classes: int = 8, n_images: int = 14) -> ImageSource:
    """Classes are smooth colour patterns; their images are noisy copies."""
    generator = np.random.default_rng([len(dataset), len(split), n_classes])
    patterns = generator.uniform(0, 255, (n_classes, 1, 4, 4, 3)).repeat(SIZE // 4, axis=2).repeat(SIZE // 4, axis=3)
    images = patterns + generator.normal(0, 60, (n_classes, n_images, SIZE, SIZE, 3))
    images = images.clip(0, 255).astype(np.uint8).reshape(-1, SIZE, SIZE, 3)
    names, starts = tuple(f"{split}-{k}" for k in range(n_classes)), np.arange(n_classes + 1) * n_images
    return ImageSource(dataset, split, images, names, starts, digest=f"{dataset}-{split}")


def mapped_blobs(folder: Path, dataset: str, split: str, **shape: int) -> ImageSource:
    """Blobs in a file, as prepared datasets are."""
    source, path = blobs(dataset, split, **shape), folder / f"{dataset}-{split}.npy"
    if not path.exists():
        np.save(path, source.images)
    return replace(source, images=np.load(path, mmap_mode="r"))


def sized(*sizes: int, superclasses=None, spans=None) -> ImageSource:
    """A split whose classes have these sizes; all its images are black."""
    starts = np.cumsum([0, *sizes])
    names, images = tuple(f"class {k}" for k in range(len(sizes))), np.broadcast_to(np.uint8(0), (starts[-1], 1, 1, 3))
    spans = None if spans is None else tuple(map(np.array, spans))
    return ImageSource("uneven", "test", images, names, starts, superclasses, spans)


def small_study(**changes) -> Study:
    """One in-domain and one out-of-domain dataset, two steps of everything."""
    protocol = {"kind": "variable", "maximum_way": 6, "maximum_support_size": 20, "queries_per_class": 3}
    one_shot = {"kind": "fixed", "way": 5, "shot": 1, "queries_per_class": 2}
    both = ["support", "support_and_query"]
    on_both = {"protocol": protocol, "datasets": ["blobs", "others"], "trainings": both, "episodes": 2}
    on_one = {"protocol": one_shot, "datasets": ["blobs"], "trainings": both[1:], "episodes": 3}
    pretraining = {"epochs": 2, "batch_size": 32, "learning_rate": 0.05, "learning_rate_drop_every": 1}
    meta_training = {"protocol": protocol, "episodes": 8, "episodes_per_step": 2}
    validation = {"validate_every": 4, "validation_datasets": ["blobs"], "validation_episodes": 2}
    content = {
        "name": "small",
        "image_size": SIZE,
        "datasets": {name: {"source": "miniature", "domain": d} for name, d in (("blobs", "in"), ("others", "out"))},
        "pretraining": {"datasets": ["blobs"], **pretraining},
        "meta_training": {"datasets": ["blobs"], **meta_training, **validation},
        "refinement": {"recorded_steps": 4, "minimum_steps": 2, "maximum_steps": 3},
        "evaluations": {"variable": on_both, "5-way-1-shot": on_one},
    }
    return Study.model_validate(content | changes, strict=False)
