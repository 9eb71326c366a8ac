"""A digest of what code computes, so that one can tell whether the code behind a result has changed since."""

import ast
import json
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tcnaps import __version__
from tcnaps.config.errors import UserError
from tcnaps.config.storage import digest_of

HOME = Path(__file__).parents[2]
PACKAGES = ("tcnaps", "tcnaps_suite")


def code_fingerprint(paths: Iterable[str | Path], without: Iterable[str] = ()) -> str:
    """A digest of modules or notebooks together with every module of tcnaps and tcnaps_suite that they import.

    Comments, docstrings and layout don't count, nor do a notebook's prose, outputs and metadata: saving a
    notebook or explaining a function makes nothing stale.

    Args:
        paths: modules (.py) and notebooks (.ipynb).
        without: rooms and modules to leave out, such as `tcnaps.figures` (all of it) or `tcnaps.figures.results`,
            together with what only they import.

    Raises:
        UserError: a file is missing, is no notebook or is not valid Python.
    """
    waiting, codes = {Path(path).resolve() for path in paths}, {}
    left_out = tuple(f"{room}." for room in without)
    while waiting:
        path = waiting.pop()
        codes[path], imported = _code(path)
        for name in imported:
            file = None if f"{name}.".startswith(left_out) or name in PACKAGES else _module_file(name)
            if file is not None and file not in codes:
                waiting.add(file)
    named = [(str(path.relative_to(HOME)) if _is_ours(path) else path.name, code) for path, code in codes.items()]
    return digest_of(sorted(named))[:16]


@cache
def code_version() -> str:
    """The package's version and, in a clone of its source, the commit: "0.1.0, commit 722d4440a1b2, changed"."""
    root = HOME
    if not (root / ".git").exists():
        return __version__
    try:
        commit, changes = (
            subprocess.run(["git", "-C", str(root), *asked], capture_output=True, text=True, check=True).stdout.strip()
            for asked in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--", *PACKAGES, "notebooks"])
        )
    except (OSError, subprocess.CalledProcessError):  # no git, or a clone that belongs to someone else
        return __version__
    return f"{__version__}, commit {commit}{', changed' if changes else ''}"


def code_cells(path: str | Path) -> list[tuple[str, list[str]]]:
    """Source and tags of each code cell of a notebook.

    Raises:
        UserError: there is no such file, or it is no notebook of format 4.
    """
    try:
        cells = [cell for cell in json.loads(_text(path))["cells"] if cell["cell_type"] == "code"]
        return [("".join(cell["source"]), cell["metadata"].get("tags", [])) for cell in cells]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a notebook of format 4 ({error!r}).") from error


def parse(source: str, path: str | Path) -> ast.Module:
    """Parses a module or a cell; IPython's % and ! lines count as blank.

    Raises:
        UserError: the source is not valid Python.
    """
    lines = ("" if line.startswith(("%", "!")) else line for line in source.splitlines())
    try:
        return ast.parse("\n".join(lines))
    except SyntaxError as error:
        raise UserError(f"{path} is not valid Python: {error.msg}: {(error.text or '').strip()}") from error


def _is_ours(path: Path) -> bool:
    return any(path.is_relative_to(HOME / package) for package in PACKAGES)


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error


@cache
def _code(path: Path) -> tuple[str, frozenset[str]]:
    """The bare code of a module or notebook, and the dotted names that it imports."""
    notebook = path.suffix == ".ipynb"
    sources = [source for source, _ in code_cells(path)] if notebook else [_text(path)]
    trees = [_Bare().visit(parse(source, path)) for source in sources]
    package = path.relative_to(HOME).parent.parts if _is_ours(path) else ()
    names = {name for tree in trees for node in ast.walk(tree) for name in _imported(node, package)}
    return "\n".join(map(ast.unparse, trees)), frozenset(names)


class _Bare(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node  # docstrings


def _imported(node: ast.AST, package: tuple[str, ...]) -> Iterator[str]:
    """Every name that may be a module; importing a.b.c runs a and a.b too."""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else ()
        base = [*above, *([node.module] if node.module else [])]
        names = [".".join([*base, alias.name]) for alias in node.names]
    for name in names:
        parts = name.split(".")
        yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _module_file(name: str) -> Path | None:
    stem = HOME.joinpath(*name.split("."))
    if not _is_ours(stem):
        return None
    return next((file for file in (stem.with_suffix(".py"), stem / "__init__.py") if file.is_file()), None)
