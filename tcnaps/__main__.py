"""python -m tcnaps label FOLDER: labels a folder of images, of which a few per class have a label."""

import sys
from importlib.metadata import entry_points


def main() -> int:
    """Runs a command that an installed package provides as an entry point of the group `tcnaps.commands`."""
    commands = {point.name: point for point in entry_points(group="tcnaps.commands")}
    if len(sys.argv) > 1 and sys.argv[1] in commands:
        return commands[sys.argv[1]].load()()
    print(f"usage: python -m tcnaps {{{','.join(sorted(commands))}}} ...", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
