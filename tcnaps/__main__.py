"""python -m tcnaps label FOLDER: labels a folder of images, of which a few per class have a label."""

import sys

from tcnaps.studies.labelling import main

if __name__ == "__main__":
    sys.exit(main())
