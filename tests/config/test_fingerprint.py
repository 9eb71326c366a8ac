import subprocess

import pytest
from notebook_files import cell, write_notebook

from tcnaps import __version__
from tcnaps.config import fingerprint
from tcnaps.config.errors import UserError
from tcnaps.config.fingerprint import code_cells, code_fingerprint, code_version

MODULE = '''"""What it is for."""
from tcnaps.other import helper

def answer(x: int) -> int:
    """Says it."""
    return helper(x) + 1   # why
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package in place of tcnaps: first -> other -> far, and away, which nothing imports."""
    folder = tmp_path / "tcnaps"
    (folder / "sub").mkdir(parents=True)
    modules = {
        "first": MODULE,
        "other": "from .sub import far\ndef helper(x):\n    return x",
        "away": "x = 1",
        "__init__": "",
        "sub/__init__": "",
        "sub/far": "x = 1",
    }
    for name, code in modules.items():
        (folder / f"{name}.py").write_text(code)
    monkeypatch.setattr("tcnaps.config.fingerprint.HOME", tmp_path)
    return folder


def edited(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    fingerprint._code.cache_clear()


def test_explanations_and_layout_are_not_code(package):
    before = code_fingerprint([package / "first.py"])
    edited(package / "first.py", "What it is for.", "Something else.")
    edited(package / "first.py", "Says it.", "Says\n    it at length.")
    edited(package / "first.py", "   # why", "")
    edited(package / "first.py", "helper(x) + 1", "(helper( x )\n        + 1)")
    assert code_fingerprint([package / "first.py"]) == before
    edited(package / "first.py", "+ 1", "+ 2")
    assert code_fingerprint([package / "first.py"]) != before


@pytest.mark.parametrize(
    ("name", "without", "counts"),
    [
        ("other", [], True),
        ("sub/far", [], True),
        ("sub/__init__", [], True),
        ("away", [], False),
        ("__init__", [], False),
        ("first", ["tcnaps.other"], True),
        ("sub/far", ["tcnaps.other"], False),  # which only it imports
        ("sub/__init__", ["tcnaps.sub"], False),
        ("sub/far", ["tcnaps.sub.far"], False),
    ],
)
def test_imported_modules_count_unless_they_or_their_rooms_are_left_out(package, name, without, counts):
    before = code_fingerprint([package / "first.py"], without)
    edited(package / f"{name}.py", "", "new = 1\n")
    assert (code_fingerprint([package / "first.py"], without) != before) == counts


def test_a_notebooks_outputs_and_prose_are_not_code(package, tmp_path):
    source = "%matplotlib inline\nfrom tcnaps.other import helper\nhelper(1)"
    path = write_notebook(tmp_path / "n.ipynb", cell("# Why?", kind="markdown"), cell(source))
    before = code_fingerprint([path])
    output = {"output_type": "stream", "name": "stdout", "text": "1"}
    saved = cell(source) | {"outputs": [output], "execution_count": 9}
    write_notebook(path, cell("# How?", kind="markdown"), saved)
    fingerprint._code.cache_clear()
    assert code_fingerprint([path]) == before
    write_notebook(path, cell(source.replace("1", "2")))
    fingerprint._code.cache_clear()
    assert code_fingerprint([path]) != before


def test_code_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere.py cannot be read"):
        code_fingerprint([tmp_path / "nowhere.py"])
    (tmp_path / "n.ipynb").write_text("{}")
    with pytest.raises(UserError, match="n.ipynb is not a notebook of format 4"):
        code_cells(tmp_path / "n.ipynb")
    (tmp_path / "wrong.py").write_text("def f(:\n    pass")
    with pytest.raises(UserError, match=r"wrong.py is not valid Python: .*def f\(:"):
        code_fingerprint([tmp_path / "wrong.py"])


def test_the_codes_version_names_the_commit_and_says_if_the_code_differs_from_it(package):
    def git(*arguments):
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        command = ["git", "-C", str(package.parent), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    version = code_version.__wrapped__
    assert version() == __version__
    git("init")
    assert version() == __version__  # no commit yet
    git("add", ".")
    git("commit", "-m", "first")
    commit = git("rev-parse", "HEAD")[:12]
    (package.parent / "results.csv").touch()
    assert version() == f"{__version__}, commit {commit}"
    edited(package / "first.py", "+ 1", "+ 2")
    assert version() == f"{__version__}, commit {commit}, changed"
