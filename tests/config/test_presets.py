"""The presets, and that docs/fidelity.md says of them what they are."""

import re
from pathlib import Path

import pytest
import yaml
from small_study import small_study

from tcnaps.config.study import PRESETS

DOCUMENT = Path(__file__).parents[2] / "docs" / "fidelity.md"


def leaves(content, path=()):
    """Every value of nested dictionaries, by its dotted key."""
    if not isinstance(content, dict):
        return {".".join(path): content}
    return {key: value for name, below in content.items() for key, value in leaves(below, (*path, name)).items()}


def documented():
    """Rows of the table of switches: number, key, the paper's and the released value, which protocols they hold for."""
    rows = []
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and (key := re.match(r"`([a-z_.]+)`", cells[2])):
            kinds = [kind for kind in ("variable", "fixed") if cells[1].endswith(f", {kind}")]
            values = {"paper": yaml.safe_load(cells[3]), "released": yaml.safe_load(cells[4])}
            rows.append((cells[0], key[1], values, kinds or ["variable", "fixed"]))
    return rows


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("kind", ["variable", "fixed"])
def test_a_study_under_a_preset_has_the_switches_of_the_document(preset, kind):
    protocol = {"kind": "variable"} if kind == "variable" else {"kind": "fixed", "way": 5, "shot": 1}
    training = {"datasets": ["blobs"], "validation_datasets": ["blobs"], "protocol": protocol}
    study = small_study(preset=preset, meta_training=training, refinement={}).model_dump(mode="json")
    rows, values = documented(), leaves(study) | study
    assert {number for number, *_ in rows} == {"–", *(str(n) for n in range(1, 19) if n not in (6, 10, 14, 15, 16))}
    for _, key, wanted, kinds in rows:
        if kind in kinds and (kind == "variable" or not key.startswith("meta_training.protocol")):
            assert values[key] == wanted[preset], key


def test_every_switch_of_the_presets_is_documented():
    keys = {key for _, key, *_ in documented()} | {"meta_training.validation_protocol"}
    for preset, kinds in PRESETS.items():
        for kind, content in kinds.items():
            for key in leaves(content):
                assert any(key == k or key.startswith(f"{k}.") for k in keys), (preset, kind, key)


def test_what_the_yaml_says_goes_before_the_preset():
    study = small_study(preset="released", clustering={"task_covariance_divisor": "n"}, pixel_range=[0, 1])
    assert study.clustering.task_covariance_divisor == "n" and study.pixel_range == (0, 1)
    assert study.clustering.simple_class_covariance_divisor == "n-1"  # the rest of the section is the preset's
    assert study.meta_training.protocol.maximum_way == 6
    assert PRESETS["released"]["both"]["clustering"]["task_covariance_divisor"] == "n-1"  # nothing leaked into it
