"""Write a report: ``python scripts/report.py RUN.yaml``; the same as ``opboost report RUN.yaml``."""

import sys

from parties.cli import main

if __name__ == "__main__":
    main(["report", *sys.argv[1:]])
