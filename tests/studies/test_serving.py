"""The served copies of the notebooks; what is refused before anything is served."""

import json
import shutil
from pathlib import Path

import pytest
from notebook_files import cell, write_notebook
from small_study import small_study

from tcnaps.config.fingerprint import SourceError, code_cells
from tcnaps.studies import serving
from tcnaps.studies.batch import BatchError

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path, monkeypatch):
    shutil.copytree(REPOSITORY / "notebooks", tmp_path / "notebooks")
    (tmp_path / "Snakefile").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_copies_hold_the_study_and_nothing_that_trains(root):
    folder = serving.copy_notebooks(small_study(), "configs/o'small.yaml")
    assert folder == root / "results" / "small" / "served"
    assert sorted(path.stem for path in folder.iterdir()) == sorted(serving.NOTEBOOKS)
    for path in folder.iterdir():
        sources = [source for source, _ in code_cells(path)]
        position = next(i for i, (_, tags) in enumerate(code_cells(path)) if "parameters" in tags)
        assert sources[position + 1] == 'study = "configs/o\'small.yaml"'
        original = [source for source, _ in code_cells(root / "notebooks" / path.name)]
        assert sources[: position + 1] + sources[position + 2 :] == original
        assert not any("train(" in source or "evaluate(" in source for source in sources)


def test_old_copies_go(root):
    stray = root / "results" / "small" / "served" / "02-pretrain.ipynb"
    stray.parent.mkdir(parents=True)
    stray.touch()
    serving.copy_notebooks(small_study(), "configs/small.yaml", ["14-views"])
    assert [path.name for path in stray.parent.iterdir()] == ["14-views.ipynb"]


def test_refused(root):
    write_notebook(root / "notebooks" / "20-other.ipynb", cell("other = 1", "parameters"))
    with pytest.raises(BatchError, match="has no parameter 'study'"):
        serving.copy_notebooks(small_study(), "configs/small.yaml", ["20-other"])
    with pytest.raises(SourceError, match="21-none"):
        serving.copy_notebooks(small_study(), "configs/small.yaml", ["21-none"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "Usage"), (["--port=1"], "Usage"), (["configs/none.yaml"], "No study at configs/none.yaml")],
)
def test_the_command_says_what_is_wrong(root, capsys, arguments, message):
    assert serving.main(arguments) == 2
    assert message in capsys.readouterr().err


def test_the_command_becomes_voila(root, monkeypatch):
    (root / "configs").mkdir()
    shutil.copy(REPOSITORY / "configs" / "miniature.yaml", root / "configs")
    monkeypatch.setenv(serving.READ_ONLY, "0")
    started = []

    def become(program, arguments):
        started.extend(arguments)
        raise SystemExit(0)

    monkeypatch.setattr("os.execv", become)
    assert not serving.read_only()
    with pytest.raises(SystemExit):
        serving.main(["configs/miniature.yaml", "--port=1234"])
    assert started[1:4] == ["-m", "voila", str(root / "results" / "miniature" / "served")]
    assert started[-1] == "--port=1234" and serving.read_only()
    copied = json.loads((root / "results/miniature/served/14-views.ipynb").read_text())
    assert any("configs/miniature.yaml" in "".join(cell["source"]) for cell in copied["cells"])
