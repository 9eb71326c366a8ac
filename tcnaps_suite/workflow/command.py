"""The command line of what is done for one study: its file is the only argument."""

import argparse
from collections.abc import Callable

from tcnaps.config import UserError


def run(description: str, act: Callable[[str], object], arguments: list[str] | None = None) -> None:
    """Prints what `act` returns for the study's file. Status 2: the study is wrong, or lacks what is needed."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("study", help="the study's YAML, such as configs/miniature.yaml")
    try:
        print(act(parser.parse_args(arguments).study))
    except UserError as error:
        parser.exit(2, f"{error}\n")
