"""Writes a study's report, an HTML file that can be mailed and opens without the project.

python -m tcnaps_suite.workflow.report configs/miniature.yaml
"""

import sys
from collections.abc import Sequence

from tcnaps.config import UserError
from tcnaps_suite.workflow.report.page import write_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the report and says where. Status 2: it was asked for wrongly, or there are no results."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) != 1 or given[0].startswith("-"):
        print("Usage: python -m tcnaps_suite.workflow.report STUDY", file=sys.stderr)
        return 2
    try:
        report = write_report(given[0])
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{report} ({report.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
