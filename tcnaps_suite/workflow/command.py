"""What is done for one study, whose file is the only argument: make report, make archive, make reference."""

import argparse

from tcnaps.config import UserError, load_study
from tcnaps_suite.workflow.archive import write_archive
from tcnaps_suite.workflow.reference import keep
from tcnaps_suite.workflow.report import write_report

ACTIONS = {"report": write_report, "archive": write_archive, "reference": lambda path: keep(load_study(path))}


def main(arguments: list[str] | None = None) -> None:
    """Prints what was written for the study. Status 2: the study is wrong, or lacks what is needed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("study", help="the study's YAML, such as configs/miniature.yaml")
    options = parser.parse_args(arguments)
    try:
        print(ACTIONS[options.action](options.study))
    except UserError as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
