"""python -m tcnaps label FOLDER: labels a folder of images, of which a few per class have a label."""

import sys
from importlib.metadata import entry_points


def main(arguments: list[str] | None = None) -> int:
    """Runs a command that an installed package provides as an entry point of the group `tcnaps.commands`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    commands = {point.name: point for point in entry_points(group="tcnaps.commands")}
    if arguments and arguments[0] in commands:
        return commands[arguments[0]].load()(arguments)
    print(f"usage: python -m tcnaps {{{','.join(sorted(commands))}}} ...", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
