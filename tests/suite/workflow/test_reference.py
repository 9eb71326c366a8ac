"""The reference of a study: which of two files is read, and how a run compares, with planted tables."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
import test_examples
from small_study import small_study

from tcnaps.config import UserError
from tcnaps_suite.workflow.reference import CHECKED, CHECKSUMS, check, compared, file_of, keep, write_checksums

ROOT = Path(__file__).parents[3]
GAIN = pd.DataFrame({"evaluation": "5-way-1-shot", "dataset": ["a", "b"], "difference": [0.03, 0.01], "interval": 0.01})


@pytest.fixture
def study(root):
    for folder in ("results/small", "results/reference/small", "figures/reference/small"):
        (root / folder).mkdir(parents=True)
    GAIN.to_csv("results/reference/small/gain-at-1-shot.csv", index=False)
    return small_study()


def test_the_runs_file_goes_before_the_references(study, root):
    name, reference = "results/small/gain-at-1-shot.csv", root / "results/reference/small/gain-at-1-shot.csv"
    assert file_of(name) == reference and file_of("figures/small/gain.png") is None
    (root / name).touch()
    assert file_of(name) == root / name


def test_contrasts_agree_within_both_intervals(study):
    assert compared(study) == ""  # nothing has been run
    run = GAIN.assign(difference=[0.03 + 0.0141, 0.01 + 0.0142])
    run.to_csv("results/small/gain-at-1-shot.csv", index=False)
    line = compared(study)
    assert line.startswith("1 of 2 contrasts agree") and line.endswith("not: 5-way-1-shot b.")
    (study.results_folder / "gain-at-1-shot.csv").write_text("damaged")
    assert "gain-at-1-shot.csv" in compared(study)


@pytest.mark.parametrize("folder", CHECKED)
def test_committed_tables_have_their_checksums(folder):
    check(folder)
    names = {line.split("  ", 1)[1] for line in (ROOT / CHECKSUMS).read_text().splitlines()}
    there = {file.relative_to(ROOT).as_posix() for file in (ROOT / folder).rglob("*.*") if file.is_file()}
    assert there <= names, f"`make reference` writes {CHECKSUMS}"


def test_a_flipped_bit_and_a_missing_file_are_named(study):
    table = Path("results/reference/small/gain-at-1-shot.csv")
    write_checksums()
    check("results/reference")
    content = bytearray(table.read_bytes())
    content[-5] ^= 1
    table.write_bytes(content)
    with pytest.raises(UserError, match="gain-at-1-shot.csv is damaged"):
        check("results/reference")
    table.unlink()
    with pytest.raises(UserError, match="gain-at-1-shot.csv is damaged or missing"):
        check("results/reference")


def test_what_has_not_run_is_no_reference(study):
    with pytest.raises(UserError, match="make figures"):
        keep(study)


def test_pages_hold_beside_a_run_with_other_numbers(tmp_path, monkeypatch):
    for name in ("docs", "results/reference"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "README.md", tmp_path)
    (tmp_path / "results/miniature").mkdir()
    (tmp_path / "results/miniature/gain-at-1-shot.csv").write_text("dataset,difference,interval\nglyphs,0.9,0.1\n")
    monkeypatch.setattr(test_examples, "ROOT", tmp_path)
    test_examples.test_a_page_s_numbers_stand_in_the_tables_that_it_names("docs/miniature-study.md")
