"""Studies in configs/ load; benchmarks are as in arXiv 2006.12245, appendix A; the pages' links and sections hold."""

import itertools
import re
from pathlib import Path
from typing import get_args

import pytest
import yaml
from file_readers import noise
from pydantic import TypeAdapter

from tcnaps.config import FixedProtocol, Study, load_study
from tcnaps.config.settings import AnyDataset, Dataset
from tcnaps.data import open_splits
from tcnaps.method.variants import TRAININGS

ROOT = Path(__file__).resolve().parents[3]
STUDIES = sorted(file.stem for file in (ROOT / "configs").glob("*.yaml"))
FIXED = ["mini-imagenet", "mini-imagenet-feti", "tiered-imagenet", "tiered-imagenet-feti"]
PAGES = sorted((ROOT / "docs").glob("*.md"))
IN_DOMAIN = ("ilsvrc_2012", "omniglot", "aircraft", "cu_birds", "dtd", "quickdraw", "fungi", "vgg_flower")
OUT_OF_DOMAIN = ("traffic_sign", "mscoco", "mnist", "cifar10", "cifar100")


def study_of(name: str) -> Study:
    return load_study(ROOT / "configs" / f"{name}.yaml")


def my_images_with(folder: Path, **values) -> Study:
    """The study my-images with other values at its top level, from a file."""
    content = yaml.safe_load((ROOT / "configs" / "my-images.yaml").read_text()) | values
    (folder / "study.yaml").write_text(yaml.safe_dump(content))
    return load_study(folder / "study.yaml")


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_loads_and_uses_every_dataset(name):
    study = study_of(name)
    assert study.name == name
    lists = [study.pretraining.datasets, study.meta_training.datasets, study.meta_training.validation_datasets]
    lists += [evaluation.datasets for evaluation in study.evaluations.values()]
    assert set().union(*lists) == set(study.datasets)
    files = [dataset for dataset in study.datasets.values() if dataset.source != "miniature"]
    assert all(dataset.path.startswith("data/") for dataset in files)


def test_meta_dataset_is_as_in_the_paper():
    study = study_of("meta-dataset")
    training, evaluation = study.meta_training, study.evaluations["variable"]
    assert tuple(study.datasets) == IN_DOMAIN + OUT_OF_DOMAIN
    assert all((dataset.domain == "in") == (name in IN_DOMAIN) for name, dataset in study.datasets.items())
    assert (study.preset, study.image_size, evaluation.episodes) == ("paper", 84, 600)
    assert study.pretraining.datasets == ("ilsvrc_2012",)
    assert training.datasets == IN_DOMAIN and training.validation_datasets == (*IN_DOMAIN, "mscoco")
    assert training.episodes == 110_000 and study.refinement.limits == (2, 4)
    assert evaluation.datasets == IN_DOMAIN + OUT_OF_DOMAIN
    assert evaluation.trainings == study.trainings == tuple(TRAININGS) and len(TRAININGS) == 6
    for protocol in (training.protocol, evaluation.protocol):
        assert protocol.kind == "variable" and protocol.shots == "meta-dataset"
        assert (protocol.minimum_way, protocol.maximum_way, protocol.queries_per_class) == (5, 50, 10)
        assert (protocol.maximum_support_size, protocol.maximum_support_per_class) == (500, 100)


@pytest.mark.parametrize("name", FIXED)
def test_mini_and_tiered_imagenet_are_as_in_the_paper(name):
    study, benchmark = study_of(name), name.removesuffix("-feti")
    assert (study.preset, study.image_size, study.refinement.limits) == ("paper", 84, (2, 10))
    assert study.pretraining.datasets == (("imagenet-feti",) if name.endswith("-feti") else (benchmark,))
    assert study.meta_training.datasets == study.meta_training.validation_datasets == (benchmark,)
    for way, shot in itertools.product((5, 10), (1, 5)):
        evaluation = study.evaluations[f"{way}-way-{shot}-shot"]
        assert evaluation.protocol == FixedProtocol(way=way, shot=shot, queries_per_class=10)
        assert evaluation.datasets == (benchmark,) and evaluation.episodes == 600


def test_the_heads_are_compared_on_the_miniature_s_networks_and_episodes():
    heads, miniature = study_of("heads"), study_of("miniature")
    for section in ("seed", "datasets", "pretraining", "refinement", "image_size", "precision", "clustering"):
        assert getattr(heads, section) == getattr(miniature, section), section
    protocol = heads.meta_training.protocol.model_copy(update={"query_concentration": None, "queries_per_class": 5})
    assert protocol == miniature.meta_training.protocol
    for name in ("variable", "5-way-1-shot"):
        here, there = heads.evaluations[name], miniature.evaluations[name]
        assert (here.protocol, here.datasets) == (there.protocol, there.datasets)


def test_my_images_split_a_folder_of_photographs_by_class(tmp_path):
    for number in range(50):
        place = tmp_path / "photographs" / f"class-{number // 2}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.jpg").write_bytes(noise(number, format="JPEG"))
    section = study_of("my-images").datasets["my-images"].model_dump(mode="json", exclude_none=True)
    section["path"] = str(tmp_path / "photographs")
    study = my_images_with(tmp_path, datasets={"my-images": section}, data_folder=str(tmp_path / "data"))
    splits = open_splits(study, "my-images")
    assert {name: split.n_classes for name, split in splits.items()} == {"train": 15, "valid": 5, "test": 5}
    assert len({name for split in splits.values() for name in split.class_names}) == 25
    assert splits["test"].images.shape == (10, 84, 84, 3)


def test_released_weights_need_no_training_of_my_images(tmp_path):
    page = (ROOT / "docs" / "my-images.md").read_text(encoding="utf-8")
    study = my_images_with(tmp_path, **yaml.safe_load(page.split("```yaml\n")[-1].split("```")[0]))
    assert set(study.imported) == set(study.trainings) and study.pixel_range == (-1, 1)
    assert study.task_encoder.lstm_layers == 2


def test_every_section_on_the_page_is_one_that_a_study_may_have_and_none_is_missing():
    page, seen = (ROOT / "docs" / "data.md").read_text(encoding="utf-8"), set()
    for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL):
        for text in re.split(r"\n  (?! )", block):  # one dataset each; two may have one name
            for values in yaml.safe_load("  " + text.lstrip()).values():
                seen.add(TypeAdapter(Dataset).validate_python(values, strict=False).source)
    assert seen == {get_args(one.model_fields["source"].annotation)[0] for one in get_args(AnyDataset)} - {"miniature"}


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_lead_somewhere(page):
    def anchors(file: Path) -> set[str]:
        titles = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}

    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            assert file.exists(), target
            assert not anchor or anchor in anchors(file), target
