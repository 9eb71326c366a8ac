"""tcnaps label FOLDER: labels a folder of images, of which a few per class have a label. Also: python -m tcnaps."""

import sys
from importlib.metadata import entry_points

from tcnaps import __version__


def main(arguments: list[str] | None = None) -> int:
    """Runs a command that an installed package provides as an entry point of the group `tcnaps.commands`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    first = arguments[0] if arguments else ""
    commands = {point.name: point for point in entry_points(group="tcnaps.commands")}
    if first in commands:
        return commands[first].load()(arguments)
    usage = f"usage: tcnaps [--version] {{{','.join(sorted(commands))}}} ...\n{__doc__}"
    asked = {"--version": f"tcnaps {__version__}", "--help": usage, "-h": usage}.get(first)
    print(asked or usage, file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    sys.exit(main())
