"""Launch the active party: ``python scripts/party_a.py RUN.yaml``; the same as ``opboost party-a RUN.yaml``."""

import sys

from parties.cli import main

if __name__ == "__main__":
    main(["party-a", *sys.argv[1:]])
