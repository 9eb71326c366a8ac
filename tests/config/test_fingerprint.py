"""Digests of code change with the code and with nothing else."""

import subprocess

import pytest

from tcnaps import __version__
from tcnaps.config import fingerprint
from tcnaps.config.errors import UserError
from tcnaps.config.fingerprint import code_digest, code_version

MODULE = '''"""What it is for."""

def answer(x: int) -> int:
    """Says it."""
    return x + 1   # why
'''


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with one package."""
    for file in ("tcnaps/first.py", "tcnaps/below/second.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(MODULE)
    monkeypatch.setattr(fingerprint, "HOME", tmp_path)
    return tmp_path


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    fingerprint.module_code.cache_clear()


def test_explanations_and_layout_are_not_code(project):
    module, before = project / "tcnaps" / "first.py", code_digest("tcnaps")
    edit(module, "What it is for.", "Something else.")
    edit(module, "Says it.", "Says\n    it at length.")
    edit(module, "   # why", "")
    edit(module, "x + 1", "(x\n        + 1)")
    assert code_digest("tcnaps") == before
    edit(module, "+ 1", "+ 2")
    assert code_digest("tcnaps") != before


def test_every_python_reads_the_same_in_code():
    """Python 3.12 quotes otherwise in f-strings than 3.11 and 3.13, and trees have other empty fields."""
    text = fingerprint.bare_code("""def f(x): return f'{x["a"]!r:>{3}} is'""", "here")
    x = "Name(id='x', ctx=Load())"
    value = f"Subscript(value={x}, slice=Constant(value='a'), ctx=Load())"
    width = "JoinedStr(values=[Constant(value='>'), FormattedValue(value=Constant(value=3), conversion=-1)])"
    shown = f"FormattedValue(value={value}, conversion=114, format_spec={width})"
    returned = f"Return(value=JoinedStr(values=[{shown}, Constant(value=' is')]))"
    assert text == f"Module(body=[FunctionDef(name='f', args=arguments(args=[arg(arg='x')]), body=[{returned}])])"


def test_a_folder_is_all_of_its_modules_and_a_module_is_itself_alone(project):
    folder, module = code_digest("tcnaps"), code_digest("tcnaps/first.py")
    edit(project / "tcnaps" / "below" / "second.py", "+ 1", "+ 2")
    assert code_digest("tcnaps") != folder and code_digest("tcnaps/first.py") == module
    whole, copies = code_digest("tcnaps"), project / "tcnaps" / ".ipynb_checkpoints"  # of what JupyterLab opens
    copies.mkdir()
    (copies / "first-checkpoint.py").touch()
    assert code_digest("tcnaps") == whole
    (project / "tcnaps" / "third.py").touch()
    assert code_digest("tcnaps") not in (folder, module)


def test_code_that_cannot_be_read_is_named(project):
    with pytest.raises(FileNotFoundError, match="nowhere.py"):
        code_digest("tcnaps/nowhere.py")
    (project / "tcnaps" / "wrong.py").write_text("def f(:\n    pass")
    with pytest.raises(UserError, match=r"wrong.py .*def f\(:"):
        code_digest("tcnaps")


def test_the_codes_version_names_the_commit_and_says_if_the_code_differs_from_it(project):
    def git(*arguments):
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        command = ["git", "-C", str(project), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    version = code_version.__wrapped__
    assert version() == __version__
    git("init")
    assert version() == __version__  # no commit yet
    git("add", ".")
    git("commit", "-m", "first")
    commit = git("rev-parse", "HEAD")[:12]
    (project / "results.csv").touch()
    assert version() == f"{__version__}, commit {commit}"
    edit(project / "tcnaps" / "first.py", "+ 1", "+ 2")
    assert version() == f"{__version__}, commit {commit}, changed"
