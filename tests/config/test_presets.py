"""The presets, and that docs/fidelity.md says of them what they are."""

import re
from pathlib import Path

import pytest
import yaml
from small_study import small_study

from tcnaps.config.presets import PRESETS, merged

DOCUMENT = Path(__file__).parents[2] / "docs" / "fidelity.md"
PROTOCOL = {"kind": "variable"}


def leaves(content, path=()):
    """Every value of nested dictionaries, by its dotted key."""
    if not isinstance(content, dict):
        return {".".join(path): content}
    return {key: value for name, below in content.items() for key, value in leaves(below, (*path, name)).items()}


def documented():
    """Rows of the table of switches: the key, the two values, and which protocols they hold for."""
    rows = []
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and (key := re.match(r"`([a-z_.]+)`", cells[2])):
            kinds = [kind for kind in ("variable", "fixed") if cells[1].endswith(f", {kind}")]
            number = cells[0]
            rows.append((number, key[1], yaml.safe_load(cells[3]), yaml.safe_load(cells[4]), kinds))
    return rows


def value_of(content, key):
    for name in key.split("."):
        content = content.get(name, {})
    return None if content == {} else content


def test_every_row_of_the_document_is_what_the_presets_say():
    rows, defaults = documented(), small_study().model_dump(mode="json")
    assert {number for number, *_ in rows} == {"–", *(str(n) for n in range(1, 19) if n not in (14, 15))}
    for _, key, paper, released, kinds in rows:
        for kind in kinds or ["variable", "fixed"]:
            for preset, documented_value in (("paper", paper), ("released", released)):
                there = value_of(merged(PRESETS[preset]["both"], PRESETS[preset][kind]), key)
                if key.startswith("meta_training.protocol") and kind == "fixed":
                    assert there is None
                else:  # what no preset has is the default
                    there = value_of(defaults, key) if there is None else there
                    assert there == documented_value, (key, preset, kind)


def test_every_switch_of_the_presets_is_documented():
    keys = {key for _, key, *_ in documented()} | {"meta_training.validation_protocol"}
    for preset, kinds in PRESETS.items():
        for kind, content in kinds.items():
            for key in leaves(content):
                assert any(key == k or key.startswith(f"{k}.") for k in keys), (preset, kind, key)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("kind", ["variable", "fixed"])
def test_a_study_under_a_preset_has_its_switches(preset, kind):
    protocol = {"kind": "variable"} if kind == "variable" else {"kind": "fixed", "way": 5, "shot": 1}
    training = {"datasets": ["blobs"], "validation_datasets": ["blobs"], "protocol": protocol}
    study = small_study(preset=preset, meta_training=training, refinement={})
    values = leaves(study.model_dump(mode="json"))
    for key, value in leaves(merged(PRESETS[preset]["both"], PRESETS[preset][kind])).items():
        assert values[key] == value, key


def test_what_the_yaml_says_goes_before_the_preset():
    study = small_study(preset="released", clustering={"task_covariance_divisor": "n"}, pixel_range=[0, 1])
    assert study.clustering.task_covariance_divisor == "n" and study.pixel_range == (0, 1)
    assert study.clustering.simple_class_covariance_divisor == "n-1"  # the rest of the section is the preset's
    assert study.meta_training.protocol.maximum_way == 6
    assert PRESETS["released"]["both"]["clustering"]["task_covariance_divisor"] == "n-1"  # nothing leaked into it
