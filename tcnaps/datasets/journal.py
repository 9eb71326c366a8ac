"""What an interrupted preparation has finished: a line for each chunk of images, written once its pixels are.

    <key of the recipe>
    {"split": "train", "start": 0, "files": "…", "pixels": "…", "unreadable": [], "retry": false}

`files` is a digest of where the chunk's images are and of their files' sizes and times, `pixels` one of what was
written. A chunk counts as finished only if both still agree, so neither changed files nor lost writes go unnoticed.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

NAME = "journal.partial"  # beside the arrays


def continues(file: Path, key: str) -> bool:
    """Whether a journal is there, of a preparation by this recipe."""
    try:
        with file.open(encoding="utf-8") as stream:
            return stream.readline().strip() == key
    except (OSError, UnicodeDecodeError):
        return False


class Journal:
    """Finished chunks of a preparation. Use it in a `with` statement."""

    def __init__(self, file: Path, key: str) -> None:
        going_on = continues(file, key)
        self._finished = _read(file) if going_on else {}
        self._stream = file.open("a" if going_on else "w", encoding="utf-8")
        self._stream.write("\n" if going_on else f"{key}\n")  # after a line that may have been cut short
        self._stream.flush()

    def finished(self, split: str, start: int, files: str) -> dict | None:
        """The entry of a chunk whose files are still the same, unless some of it is worth trying again."""
        entry = self._finished.get((split, start))
        return entry if entry is not None and entry["files"] == files and not entry["retry"] else None

    def add(
        self, split: str, start: int, files: str, pixels: str, unreadable: Iterable[tuple[int, str]], retry: bool
    ) -> None:
        """Notes a chunk as finished."""
        entry = {"split": split, "start": start, "files": files, "pixels": pixels, "unreadable": list(unreadable)}
        self._stream.write(json.dumps(entry | {"retry": retry}) + "\n")
        self._stream.flush()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stream.close()


def _read(file: Path) -> dict[tuple[str, int], dict]:
    """Entries by split and start; of two for one chunk the later counts. Lines cut short are no entries."""
    entries = {}
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines()[1:]:
        try:
            entry = json.loads(line)
            if {"files", "pixels", "retry"} <= entry.keys():
                entry["unreadable"] = [(number, reason) for number, reason in entry["unreadable"]]
                entries[entry["split"], entry["start"]] = entry
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
    return entries
