"""Digests of source code: they tell whether the code behind a result has changed since it was made."""

import ast
import json
import re
import subprocess
from functools import cache
from pathlib import Path

from tcnaps import __version__
from tcnaps.config.errors import UserError
from tcnaps.config.storage import digest_of

HOME = Path(__file__).parents[2]
EXPERIMENTS = "tcnaps_suite/experiments"


def code_digest(*places: str) -> str:
    """A digest of the Python code in modules and folders of modules, named by their paths from the project's root.

    Comments, docstrings and layout do not count: explaining a function makes nothing stale.
    """
    files: set[Path] = set()
    for place in places:
        path = HOME / place
        files.update(path.rglob("*.py") if path.is_dir() else [path])
    return digest_of([[file.relative_to(HOME).as_posix(), _module_code(file)] for file in sorted(files)])[:16]


def notebook_code(path: str | Path) -> str:
    """The code of a notebook, and a digest of the modules of `tcnaps_suite.experiments` that it imports.

    Prose, outputs and metadata of a notebook do not count.
    """
    code = "\n".join(_bare(source, path) for source, _ in code_cells(path))
    modules: set[str] = set()
    to_read = _imported_experiments(code)
    while to_read:  # an experiment may import another
        modules |= to_read
        sources = [_module_code(HOME / EXPERIMENTS / f"{name}.py") for name in to_read]
        to_read = set().union(*map(_imported_experiments, sources)) - modules
    return f"{code}\n{code_digest(*(f'{EXPERIMENTS}/{name}.py' for name in modules))}"


@cache
def code_version() -> str:
    """The package's version and, in a clone of its source, the commit: "0.1.0, commit 722d4440a1b2, changed"."""

    def git(*question: str) -> str:
        command = ["git", "-C", str(HOME), *question]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        commit = git("rev-parse", "--short=12", "HEAD") if (HOME / ".git").exists() else ""
        changes = commit and git("status", "--porcelain", "--", "tcnaps", "tcnaps_suite", "notebooks")
    except (OSError, subprocess.CalledProcessError):  # no git, or a clone that belongs to someone else
        return __version__
    return __version__ + (f", commit {commit}" if commit else "") + (", changed" if changes else "")


def code_cells(path: str | Path) -> list[tuple[str, list[str]]]:
    """Source and tags of each code cell of a notebook."""
    try:
        cells = [cell for cell in json.loads(_text(path))["cells"] if cell["cell_type"] == "code"]
        return [("".join(cell["source"]), cell["metadata"].get("tags", [])) for cell in cells]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a notebook of format 4 ({error!r}).") from error


def parse(source: str, path: str | Path) -> ast.Module:
    """Parses a module or a cell. IPython's % and ! lines count as blank."""
    lines = ("" if line.startswith(("%", "!")) else line for line in source.splitlines())
    try:
        return ast.parse("\n".join(lines))
    except SyntaxError as error:
        raise UserError(f"{path} is not valid Python: {error.msg}: {(error.text or '').strip()}") from error


def _imported_experiments(code: str) -> set[str]:
    """Names of the modules of `tcnaps_suite.experiments` that some bare code imports."""
    lists = re.findall(r"from tcnaps_suite\.experiments import (.+)", code)
    names = {part.split()[0] for imported in lists for part in imported.split(",")}
    return names.union(re.findall(r"tcnaps_suite\.experiments\.(\w+)", code))


@cache
def _module_code(path: Path) -> str:
    return _bare(_text(path), path)


def _bare(source: str, path: str | Path) -> str:
    """Source code without comments and docstrings, in one layout."""
    return ast.unparse(_WithoutDocstrings().visit(parse(source, path)))


class _WithoutDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
