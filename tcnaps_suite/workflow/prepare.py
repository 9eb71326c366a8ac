"""Prepares the data of a study and checks that the study can be trained and tested on it.

python -m tcnaps_suite.workflow.prepare configs/miniature.yaml          prepare what is missing or stale, then check
python -m tcnaps_suite.workflow.prepare configs/miniature.yaml --list   say what is there, and what is missing
"""

import argparse
import sys

from tcnaps.config import Study, UserError, load_study
from tcnaps.config.storage import write_text
from tcnaps.data import preparation
from tcnaps.data.listing import located
from tcnaps.data.preparing import ensure_prepared, opened
from tcnaps_suite.workflow.requirements import unmet_needs


def main(arguments: list[str] | None = None) -> int:
    """Status 1: the study is wrong, data can't be prepared, or lacks what the study needs, or Ctrl-C stopped it."""
    parser = argparse.ArgumentParser(description="Prepares the data of a study.")
    parser.add_argument("study", help="the study's YAML, such as configs/miniature.yaml")
    parser.add_argument("--list", action="store_true", help="only say what is prepared and what is missing")
    options = parser.parse_args(arguments)
    try:
        return prepare(load_study(options.study), options.list)
    except (UserError, KeyboardInterrupt) as error:
        print(str(error) or "\nStopped. Finished splits are kept: the same command goes on.", file=sys.stderr)
        return 1


def prepare(study: Study, only_list: bool = False) -> int:
    """Prepares every dataset of a study, prints what each split holds, and returns the exit status.

    If one dataset fails, the others are still prepared. The datasets' digests go to results/<study>/.ready, a file
    for each. With `only_list` nothing is prepared or written, and the status is 0.
    """
    status, folder, unmet = 0, located(study.data_folder), []
    for name, dataset in study.datasets.items():
        try:
            made = preparation(name, dataset, study.image_size, study.decoding)
            prepared = opened(made, folder) if only_list else ensure_prepared(made, folder)
            if only_list:
                state = f"{'not ' * (prepared is None)}prepared in {made.place(folder)}"
                print(f"{name}: {dataset.source}, {getattr(dataset, 'path', 'built in')}, {state}")
            splits, notes = prepared or ({}, [])
            lines = [f"{name} {split}: {source}, digest {source.digest[:16]}" for split, source in splits.items()]
            for line in [*lines, *(f"{name}: {note}" for note in notes)]:
                print(line, flush=True)
            unmet += unmet_needs(study, name, splits) if splits else []
            if only_list:
                made.stamp()  # raises where files are missing
            else:
                file, content = study.results_folder / ".ready" / name, "\n".join(lines) + "\n"
                if not file.is_file() or file.read_text(encoding="utf-8") != content:  # else it keeps its time
                    write_text(file, content)
        except (UserError, ImportError, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            status = 1
    for message in unmet:
        print(message, file=sys.stderr)
    return 0 if only_list else int(status or bool(unmet))


if __name__ == "__main__":
    sys.exit(main())
