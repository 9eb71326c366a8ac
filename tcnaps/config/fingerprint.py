"""Digests of source code: they tell whether the code behind a result has changed since it was made."""

import ast
import subprocess
from functools import cache
from pathlib import Path

from tcnaps import __version__
from tcnaps.config.errors import UserError
from tcnaps.config.storage import digest_of

HOME = Path(__file__).parents[2]
COPIES = ".ipynb_checkpoints"  # where JupyterLab keeps a copy of every file that it opens


def code_digest(*places: str) -> str:
    """A digest of modules and folders (paths from the project's root), without their comments and docstrings."""
    found = {file for path in map(HOME.joinpath, places) for file in (path.rglob("*.py") if path.is_dir() else [path])}
    files = sorted(file for file in found if file.parent.name != COPIES)
    return digest_of([[file.relative_to(HOME).as_posix(), module_code(file)] for file in files])[:16]


@cache
def code_version() -> str:
    """The package's version and, in a clone of its source, the commit: "0.1.0, commit 722d4440a1b2, changed"."""
    if not (HOME / ".git").exists():
        return __version__
    command = ["git", "-C", str(HOME), "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=, changed"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):  # no git, no commit, or a clone that belongs to someone else
        return __version__
    return f"{__version__}, commit {commit}"


def parse(source: str, path: str | Path) -> ast.Module:
    """Parses a module or a cell. IPython's % and ! lines count as blank."""
    try:
        return ast.parse("\n".join("" if line.startswith(("%", "!")) else line for line in source.splitlines()))
    except SyntaxError as error:
        raise UserError(f"{path} is not valid Python: {error.msg}: {(error.text or '').strip()}") from error


@cache
def module_code(path: Path) -> str:
    return bare_code(path.read_text(encoding="utf-8"), path)


def bare_code(source: str, path: str | Path) -> str:
    """The syntax tree of source code, without comments and docstrings, as text that is the same in every Python."""
    return _text_of(parse(source, path))


def _text_of(node: object) -> str:
    if isinstance(node, list):
        code = [part for part in node if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))]
        return f"[{', '.join(map(_text_of, code))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    # Fields without a value are left out: each Python has some that others lack.
    fields = [f"{name}={_text_of(value)}" for name, value in ast.iter_fields(node) if value not in (None, [])]
    return f"{type(node).__name__}({', '.join(fields)})"
