"""python -m tcnaps.datasets STUDY.yaml: prepares every dataset of a study and says what it holds."""

import argparse
import sys
from pathlib import Path

from tcnaps.config import ConfigError, Study, load_study, project_root
from tcnaps.config.settings import Miniature
from tcnaps.config.storage import write_text
from tcnaps.datasets import preparation
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.preparing import ensure_prepared, opened


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 when the study or a dataset is at fault, or 130 when interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m tcnaps.datasets",
        description="Prepares the datasets of a study: decodes and resizes every image, once. What is prepared already "
        "is left as it is; what was interrupted goes on. Prints what every split holds.",
    )
    add = parser.add_argument
    add("study", help="the study's YAML, such as configs/miniature.yaml")
    add("--list", action="store_true", help="only say where each dataset is, if it is prepared, what is missing")
    add("--ready", type=Path, metavar="FOLDER", help="then write their digests there, one file per dataset")
    add("--dataset", action="append", metavar="NAME", help="only this one; may be given again")
    options = parser.parse_args(arguments)
    try:
        study = load_study(options.study)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    status = 0
    for name in dict.fromkeys(options.dataset or study.datasets):
        try:
            if name not in study.datasets:
                raise DatasetError(f"The study has no dataset of this name; it has: {', '.join(study.datasets)}.")
            if options.list:
                _list(study, name)
            else:
                _prepare(study, name, options.ready)
        except (DatasetError, ImportError, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            status = 1
        except KeyboardInterrupt:
            print("Interrupted. What is finished is kept: the same command goes on from there.", file=sys.stderr)
            return 130
    return status


def _prepare(study: Study, name: str, ready: Path | None) -> None:
    made = preparation(name, study.datasets[name], study.image_size, study.decoding)
    splits, notes = ensure_prepared(made, project_root() / study.data_folder)
    lines = [f"{name} {split}: {source}, sha256 {source.digest[:16]}" for split, source in splits.items()]
    print(*lines, *(f"{name}: {note}" for note in notes), sep="\n", flush=True)
    if ready is not None:
        file, content = ready / name, "\n".join(lines) + "\n"
        if not file.is_file() or file.read_text(encoding="utf-8") != content:  # else what depends on it became stale
            write_text(file, content)


def _list(study: Study, name: str) -> None:
    dataset, folder = study.datasets[name], project_root() / study.data_folder
    where = "built in" if isinstance(dataset, Miniature) else f"{dataset.source}, {project_root() / dataset.path}"
    print(f"{name}: {where}")
    try:
        made = preparation(name, dataset, study.image_size, study.decoding)
        found = opened(made, folder)
        if found is None:
            print("  not prepared")
        else:
            layouts = [f"{split}: {source}" for split, source in found.splits.items()]
            print(f"  prepared in {made.place(folder)}", *layouts, *found.notes, sep="\n  ")
        made.stamp()
    except (DatasetError, ImportError, OSError) as error:
        print(f"  {error}")


if __name__ == "__main__":
    sys.exit(main())
