"""tcnaps label FOLDER: labels a folder of images, of which a few per class have a label. Also: python -m tcnaps."""

import sys
from importlib.metadata import entry_points

from tcnaps import __version__


def main(arguments: list[str] | None = None) -> int:
    """Runs a command that an installed package provides as an entry point of the group `tcnaps.commands`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    commands = {point.name: point for point in entry_points(group="tcnaps.commands")}
    if arguments and arguments[0] in commands:
        return commands[arguments[0]].load()(arguments)
    if arguments == ["--version"]:
        print(f"tcnaps {__version__}")
        return 0
    print(f"usage: tcnaps [--version] {{{','.join(sorted(commands))}}} ...", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
