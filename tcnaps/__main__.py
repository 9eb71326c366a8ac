"""python -m tcnaps label FOLDER: labels a folder of images, of which a few per class have a label."""

import sys

USAGE = "usage: python -m tcnaps label FOLDER [options]   (python -m tcnaps label --help lists them)"


def main(arguments: list[str]) -> int:
    """Status 0; 1 if something is wrong with the images or options; 2 if there is no such command."""
    if arguments[:1] != ["label"]:
        print(USAGE, file=sys.stdout if arguments in (["-h"], ["--help"]) else sys.stderr)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    from tcnaps.studies.labelling import main as label

    return label(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
