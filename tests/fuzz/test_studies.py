"""Malformed studies: an error that names the file and what is wrong, or a study that can be planned."""

import json
from pathlib import Path

import pytest
import yaml
from fuzzing import accepted, cases, damaged, mutated
from hypothesis import given, strategies as st
from tiny_study import STUDY

from tcnaps.config import ConfigError, load_study
from tcnaps.config.dependencies import dependencies
from tcnaps_suite.workflow.notebooks import shown
from tcnaps_suite.workflow.requirements import needs_of

pytestmark = pytest.mark.fuzz
ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("studies") / "fuzzed.yaml"


def check_usable(study):
    """An accepted study can be written, read again and planned."""
    again = type(study).model_validate(json.loads(json.dumps(study.model_dump(mode="json"))), strict=False)
    assert again.model_dump() == study.model_dump()
    dependencies(study, "figures"), needs_of(study), study.origin
    assert study.results_folder.name == study.name
    assert {"02-pretrain", "03-meta-train", "04-evaluate"} <= shown(study, ROOT / "notebooks").keys()


@cases(80)
@given(case=mutated(STUDY))
def test_a_changed_study_is_refused_by_name_or_works(case, file):
    content, changed = case
    try:
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
    except (ValueError, yaml.YAMLError):  # surrogates, which no file can hold
        return
    try:
        study = load_study(file)
    except ConfigError as error:
        message = str(error)
        assert str(file) in message and len(message) < 20_000
        known = {str(key) for path in changed for key in path}
        assert any(key in message for key in known | {"missing", "required", "YAML"}), message
    else:
        check_usable(study)


@cases(60)
@given(data=st.data())
def test_a_damaged_file_is_refused_by_name_or_works(data, file):
    file.write_bytes(data.draw(damaged(data.draw(st.sampled_from(CONFIGS)).read_bytes())))
    if study := accepted(lambda: load_study(file), ConfigError, str(file)):
        check_usable(study)
