"""python -m tcnaps.datasets STUDY.yaml: prepares every dataset of a study and says what it holds."""

import argparse
import sys
import time

from tqdm.auto import tqdm

from tcnaps.config import ConfigError, load_study
from tcnaps.datasets import DatasetError, open_source, preparation, verify


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 when the study or a dataset is at fault."""
    parser = argparse.ArgumentParser(
        prog="python -m tcnaps.datasets", description="Prepares the datasets of a study."
    )
    parser.add_argument("study", help="the study's YAML, such as configs/miniature.yaml")
    parser.add_argument(
        "--verify", action="store_true", help="compare the prepared files with their checksums"
    )
    options = parser.parse_args(arguments)
    try:
        study = load_study(options.study)
        for name, dataset in tqdm(study.datasets.items(), desc="datasets", unit="dataset", disable=None):
            start = time.perf_counter()
            for split in preparation(name, dataset, study.image_size).splits:
                opened = open_source(name, dataset, split, study.image_size, study.data_folder)
                seconds, start = time.perf_counter() - start, time.perf_counter()
                scripts = f", {len(set(opened.superclasses))} superclasses" if opened.superclasses else ""
                tqdm.write(
                    f"{name} {split}: {opened.n_classes} classes{scripts}, "
                    f"{len(opened.images)} images, {seconds:.1f} s"
                )
            if options.verify:
                verify(name, dataset, study.image_size, study.data_folder)
                tqdm.write(f"{name}: checksums agree")
    except (ConfigError, DatasetError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
