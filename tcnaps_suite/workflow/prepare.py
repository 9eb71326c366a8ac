"""Prepares the data of a study and checks that it has what the study asks of it.

    python -m tcnaps_suite.workflow.prepare configs/miniature.yaml          prepare what is missing or stale, then check
    python -m tcnaps_suite.workflow.prepare configs/miniature.yaml --list   say what is there, and what is missing

`python -m tcnaps.data` does the first alone, and has more options.
"""

import argparse
import contextlib
import sys

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps.config.settings import AnyDataset, Records
from tcnaps.data import DatasetError, ImageSource, __main__ as datasets, preparation
from tcnaps.data.preparing import opened
from tcnaps.data.readers.meta_dataset import SPECIFICATION, read_specification
from tcnaps.data.readers.shared import located
from tcnaps_suite.workflow.requirements import unmet_needs


def main(arguments: list[str] | None = None) -> int:
    """Status 1: the study is wrong, a dataset can't be prepared, or it lacks what the study asks of it."""
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
    told = ["--list"] if options.list else ["--ready", options.ready] if options.ready else []
    status = datasets.main([options.study, *told])
    prepared = {name: splits for name in study.datasets if (splits := _prepared(study, name)) is not None}
    unmet = [message for name, splits in prepared.items() for message in unmet_needs(study, name, splits)]
    for message in unmet:
        print(message, file=sys.stderr)
    return status or int(bool(unmet) and not options.list)


def sizes(study: Study) -> dict[str, dict[str, tuple[int, int]]]:
    """Classes and images of every split, by dataset, of all datasets where they are known or quickly found out."""
    found = {}
    for name, dataset in study.datasets.items():
        splits = _prepared(study, name)
        if splits is not None:
            found[name] = {split: (source.n_classes, len(source.images)) for split, source in splits.items()}
            continue
        with contextlib.suppress(DatasetError, ImportError, OSError):  # the data is not there
            found[name] = _listed(study, name, dataset)
    return found


def _listed(study: Study, name: str, dataset: AnyDataset) -> dict[str, tuple[int, int]]:
    """Classes and images of a dataset that is not prepared."""
    if isinstance(dataset, Records):  # without looking through all records
        splits = read_specification(located(dataset.path) / SPECIFICATION).classes
        most = dataset.images_per_class
        return {
            split: (len(classes), sum(min(size, most or size) for _, size in classes.values()))
            for split, classes in splits.items()
        }
    made = preparation(name, dataset, study.image_size, study.decoding)
    made.stamp()  # raises where files are missing
    listed = made.source.listing().splits
    return {split: (len(classes), sum(map(len, classes.values()))) for split, classes in listed.items()}


def _prepared(study: Study, name: str) -> dict[str, ImageSource] | None:
    """The splits of a prepared dataset; None where it is not prepared."""
    try:
        made = preparation(name, study.datasets[name], study.image_size, study.decoding)
        found = opened(made, project_root() / study.data_folder)
    except (DatasetError, ImportError, OSError):  # which has been said
        return None
    return found and found.splits


if __name__ == "__main__":
    sys.exit(main())
