"""python -m tcnaps.data STUDY.yaml: prepares every dataset of a study and prints what each split holds."""

import argparse
import sys
from pathlib import Path

from tcnaps.config import ConfigError, Study, load_study, project_root
from tcnaps.config.storage import write_text
from tcnaps.data import preparation
from tcnaps.data.image_source import DatasetError
from tcnaps.data.preparing import ensure_prepared, opened


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, 1 if the study or a dataset has an error, or 130 when interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m tcnaps.data",
        description="Prepares the datasets of a study: decodes and resizes every image, once. Keeps what is prepared "
        "already, goes on where it was interrupted, and prints what every split holds.",
    )
    add = parser.add_argument
    add("study", help="the study's YAML, such as configs/miniature.yaml")
    add(
        "--list",
        action="store_true",
        help="only print where each dataset is, whether it is prepared, and what is missing",
    )
    add("--ready", type=Path, metavar="FOLDER", help="write the datasets' digests to FOLDER, one file per dataset")
    add("--dataset", action="append", metavar="NAME", help="prepare only this dataset; may be repeated")
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
            _prepare(study, name, options)
        except (DatasetError, ImportError, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            status = int(not options.list)
        except KeyboardInterrupt:
            print("Interrupted. Finished splits are kept: the same command goes on from there.", file=sys.stderr)
            return 130
    return status


def _prepare(study: Study, name: str, options: argparse.Namespace) -> None:
    dataset, folder = study.datasets[name], project_root() / study.data_folder
    made = preparation(name, dataset, study.image_size, study.decoding)
    if options.list:
        prepared = opened(made, folder)
        state = "not prepared" if prepared is None else "prepared"
        location = getattr(dataset, "path", "built in")
        print(f"{name}: {dataset.source}, {location}, {state} in {made.place(folder)}")
    else:
        prepared = ensure_prepared(made, folder)
    splits, notes = prepared or ({}, ())
    lines = [f"{name} {split}: {source}, sha256 {source.digest[:16]}" for split, source in splits.items()]
    for line in [*lines, *(f"{name}: {note}" for note in notes)]:
        print(line, flush=True)
    if options.list:
        made.stamp()  # raises where files are missing
    elif options.ready is not None:
        file, content = options.ready / name, "\n".join(lines) + "\n"
        if not file.is_file() or file.read_text(encoding="utf-8") != content:  # an unchanged file keeps its time
            write_text(file, content)


if __name__ == "__main__":
    sys.exit(main())
