"""Prepares the data of a study and checks that the study can be trained and tested on it.

    python -m tcnaps_suite.workflow.prepare configs/miniature.yaml          prepare what is missing or stale, then check
    python -m tcnaps_suite.workflow.prepare configs/miniature.yaml --list   say what is there, and what is missing

`python -m tcnaps.data` does the first alone, and has more options.
"""

import argparse
import sys

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps.data import DatasetError, ImageSource, __main__ as datasets, preparation
from tcnaps.data.preparing import opened
from tcnaps_suite.workflow.requirements import unmet_needs


def main(arguments: list[str] | None = None) -> int:
    """Status 1: the study is wrong, a dataset can't be prepared, or it lacks something that the study needs."""
    parser = argparse.ArgumentParser(
        prog="python -m tcnaps_suite.workflow.prepare", description="Prepares the data of a study."
    )
    parser.add_argument("study", help="the study's YAML, such as configs/miniature.yaml")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--list", action="store_true", help="only say what is prepared and what is missing")
    instead.add_argument("--ready", metavar="FOLDER", help="then write the datasets' digests there, one file for each")
    options = parser.parse_args(arguments)
    try:
        study = load_study(options.study)
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    words = [options.study, *(["--list"] if options.list else [])]
    status = datasets.main([*words, "--ready", options.ready] if options.ready else words)
    prepared = {name: splits for name in study.datasets if (splits := _prepared(study, name)) is not None}
    unmet = [message for name, splits in prepared.items() for message in unmet_needs(study, name, splits)]
    for message in unmet:
        print(message, file=sys.stderr)
    return status or int(bool(unmet) and not options.list)


def _prepared(study: Study, name: str) -> dict[str, ImageSource] | None:
    """The splits of a prepared dataset; None where it is not prepared."""
    try:
        recipe = preparation(name, study.datasets[name], study.image_size, study.decoding)
        dataset = opened(recipe, project_root() / study.data_folder)
    except (DatasetError, ImportError, OSError):  # `tcnaps.data` has printed it
        return None
    return dataset and dataset.splits


if __name__ == "__main__":
    sys.exit(main())
