"""What makes a notebook's job stale: its code, that of the experiments that it imports, and that of figures."""

import pytest
from notebook_files import cell, write_notebook
from small_study import small_study

from tcnaps.config import UserError, fingerprint
from tcnaps_suite.workflow import jobs, notebooks as declared

ONE, HELPER, OTHER = (f"tcnaps_suite/experiments/{name}.py" for name in ("one", "helper", "other"))
IMPORTS = ("from tcnaps_suite.experiments.one import answer", "from tcnaps_suite.experiments import one as first")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with three experiments, of which one imports another, and with a module of figures."""
    assert all((fingerprint.HOME / place).exists() for place in jobs.FIGURES_CODE)
    for module in (fingerprint, declared):
        monkeypatch.setattr(module, "HOME", tmp_path)
    monkeypatch.setattr(jobs, "FIGURES_CODE", ("tcnaps/figures",))
    for place in (ONE, HELPER, OTHER, "tcnaps/figures/style.py"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    (tmp_path / ONE).write_text("from tcnaps_suite.experiments import helper")
    return tmp_path


def keys(path):
    """The notebook's keys, where it draws and where it computes with other code."""
    fingerprint.module_code.cache_clear()
    notebook = declared.Notebook(path=path, title="", parameters={}, target="figures")
    return [jobs.key(notebook, small_study(), [job], []) for job in ({"job": "figures"}, {"code": "of training"})]


@pytest.mark.parametrize("imports", IMPORTS)
def test_a_notebooks_code_counts_but_not_outputs_and_prose(project, imports):
    source = f"%matplotlib inline\n{imports}\nanswer(1)"
    path = write_notebook(project / "n.ipynb", cell("# Why?", kind="markdown"), cell(source))
    before = keys(path)
    output = {"output_type": "stream", "name": "stdout", "text": "1"}
    saved = cell(source) | {"outputs": [output], "execution_count": 9}
    write_notebook(path, cell("# How?", kind="markdown"), saved)
    assert keys(path) == before
    write_notebook(path, cell(source.replace("1", "2")))
    assert not set(keys(path)) & set(before)


@pytest.mark.parametrize("imports", IMPORTS)
@pytest.mark.parametrize(
    ("place", "stale"),
    [(ONE, [True, True]), (HELPER, [True, True]), (OTHER, [False, False]), ("tcnaps/figures/style.py", [True, False])],
)
def test_code_makes_stale_what_runs_it(project, imports, place, stale):
    path = write_notebook(project / "n.ipynb", cell(imports))
    before, file = keys(path), project / place
    file.write_text(file.read_text() + "\nnew = 1\n")
    assert [old != new for old, new in zip(before, keys(path))] == stale


def test_what_is_no_notebook_is_named(project):
    (project / "n.ipynb").write_text("{}")
    with pytest.raises(UserError, match="n.ipynb"):
        declared.code_cells(project / "n.ipynb")
