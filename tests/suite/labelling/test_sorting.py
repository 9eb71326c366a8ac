"""Sorting images into folders and taking that back: nothing is lost when a step fails or the originals have gone."""

import os
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tcnaps.config import UserError
from tcnaps_suite.labelling.sorting import planned, sort, undo


@pytest.fixture
def planning(tmp_path):
    """Two images to be sorted into tmp_path/t, and a function that makes the plan."""
    (tmp_path / "f/unlabelled").mkdir(parents=True)
    for name in "ab":
        (tmp_path / f"f/unlabelled/{name}.jpg").write_text(name)
    table = pd.DataFrame({"file": ["unlabelled/a.jpg", "unlabelled/b.jpg"], "label": ["oak", "elm"]})
    return lambda move=False: planned(tmp_path / "f", table, tmp_path / "t", move)


def test_undo_never_deletes_the_last_copy(planning, tmp_path):
    sort(planning(), tmp_path / "t")
    shutil.rmtree(tmp_path / "f")
    assert "2 have changed, or lost" in undo(tmp_path / "t") and len(list(tmp_path.rglob("*.jpg"))) == 2
    (tmp_path / "f/unlabelled").mkdir(parents=True)
    (tmp_path / "f/unlabelled/a.jpg").symlink_to(tmp_path / "t/oak/a.jpg")
    assert "2 have changed" in undo(tmp_path / "t") and (tmp_path / "f/unlabelled/a.jpg").read_text() == "a"
    (tmp_path / "t").rename(tmp_path / "renamed")
    with pytest.raises(UserError, match="the name back"):
        undo(tmp_path / "renamed")


def test_undo_leaves_folders_that_it_did_not_make(planning, tmp_path):
    (tmp_path / "t/own/empty").mkdir(parents=True)
    (tmp_path / "t/link").symlink_to(tmp_path / "t/own/empty")
    sort(planning(), tmp_path / "t")
    undo(tmp_path / "t")
    assert sorted(place.name for place in (tmp_path / "t").rglob("*")) == ["empty", "link", "own"]


@pytest.mark.parametrize("move, call", [(False, "rename"), (True, "unlink")])
def test_a_sort_that_fails_midway_is_taken_back(planning, tmp_path, monkeypatch, move, call):
    plan, works = planning(move), getattr(os, call)

    def fails(path, *others, **options):
        if Path(path).name in ("1", "a.jpg"):  # the second staged copy; the first source
            raise PermissionError(13, "Permission denied", str(path))
        return works(path, *others, **options)

    with monkeypatch.context() as patch, pytest.raises(UserError, match="--undo"):
        patch.setattr(os, call, fails)
        sort(plan, tmp_path / "t", move)
    assert "Took back 2" in undo(tmp_path / "t") and not list((tmp_path / "t").rglob("*"))
    assert len(list((tmp_path / "f").rglob("*.jpg"))) == 2


@pytest.mark.parametrize("content", ["", "file,label\na.jpg,oak\n"])
def test_a_table_of_the_same_name_is_left_alone(planning, tmp_path, content):
    (tmp_path / "t").mkdir()
    (tmp_path / "t/sorted.csv").write_text(content)
    for call in (planning, lambda: undo(tmp_path / "t")):
        with pytest.raises(UserError, match="no list of sorted images"):
            call()
    assert (tmp_path / "t/sorted.csv").read_text() == content


def test_undo_of_no_image(planning, tmp_path):
    sort(planning().iloc[:0], tmp_path / "t")
    assert "Took back 0" in undo(tmp_path / "t")


def test_names_that_some_disks_take_for_one_are_refused(tmp_path):
    table = pd.DataFrame({"file": ["unlabelled/a.jpg", "unlabelled/A.jpg"], "label": "elm"})
    with pytest.raises(UserError, match="More than one"):
        planned(tmp_path / "f", table, tmp_path / "t")
