"""What the notebooks draw and write, with their own words on it, and how their last runs went."""

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

WRITTEN = re.compile(r'(figures|results)_folder((?: / (?:f?"[^"]*"|\w+))+)')


@dataclass(frozen=True)
class Output:
    """A figure or a table that a notebook makes.

    Attributes:
        folder: "figures" or "results".
        name: what its path below that folder matches, a regular expression.
        heading, prose: of the section that it belongs to, in Markdown.
    """

    folder: str
    name: str
    heading: str
    prose: str

    def makes(self, path: str) -> bool:
        """Whether this is the file, in the folder of whichever replicate."""
        return re.fullmatch(rf"(replicate-\d+/)?{self.name}", path) is not None


def outputs_of(notebook: Path) -> list[Output]:
    """The figures and tables whose names stand in a notebook's code, in their order."""
    found, heading, prose = [], "", ""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            *_, title, prose = ["", *re.split(r"^#+ (.*)$", text, flags=re.MULTILINE)][-2:]
            heading, prose = title or heading, prose.strip()
        else:
            found += [Output(folder, _pattern(parts), heading, prose) for folder, parts in WRITTEN.findall(text)]
    return found


def _pattern(parts: str) -> str:
    """A regular expression for a path in code, such as ` / "rivals" / f"{shot}-shot"`; what varies matches any name."""
    names = []
    for part in parts.split(" / ")[1:]:
        literal = part.lstrip("f").strip('"') if '"' in part else "{}"
        names.append(re.sub(r"\\\{.*?\\\}", "[^/]*", re.escape(literal)))
    return "/".join(names)


def opening(notebook: Path) -> tuple[str, str]:
    """A notebook's title, which is a question, and the prose below it, in Markdown."""
    first = json.loads(notebook.read_text(encoding="utf-8"))["cells"][0]
    title, _, prose = "".join(first["source"]).partition("\n")
    return title.lstrip("# "), prose.strip()


@dataclass(frozen=True)
class Run:
    """An executed copy of a notebook: when it began (in UTC), how long it took, with what, and what it printed last."""

    started: str
    seconds: float
    parameters: dict
    answer: str


def runs(results: Path) -> dict[str, Run]:
    """A study's executed notebooks; those that failed or can't be read are left out.

    Args:
        results: the study's folder of results.

    Returns:
        name → run; names of replicates after the first begin with `replicate-<number>/`.
    """
    found = {}
    for file in sorted([*results.glob("notebooks/*.ipynb"), *results.glob("replicate-*/notebooks/*.ipynb")]):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            facts = content["metadata"]["papermill"]
            texts = ["".join(output.get("text", "")) for output in content["cells"][-1].get("outputs", [])]
        except (ValueError, LookupError):
            continue
        if not facts.get("exception") and facts.get("duration"):
            started = facts["start_time"][:16].replace("T", " ")
            name = "/".join([*file.relative_to(results).parts[:-2], file.stem])
            found[name] = Run(started, facts["duration"], facts["parameters"], "".join(texts).strip())
    return found


def command(notebook: str, parameters: dict) -> str:
    """What executes a notebook with these parameters, from the project's root."""
    values = [("-p", name, v if isinstance(v, str) else json.dumps(v)) for name, v in parameters.items()]
    start = [
        ".venv/bin/python",
        "-m",
        "tcnaps_suite.workflow.batch",
        "notebook",
        f"notebooks/{notebook}.ipynb",
        "executed.ipynb",
    ]
    return shlex.join([*start, *(word for value in values for word in value)])
