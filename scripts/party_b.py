"""Launch a passive party: ``python scripts/party_b.py RUN.yaml``; the same as ``opboost party-b RUN.yaml``."""

import sys

from parties.cli import main

if __name__ == "__main__":
    main(["party-b", *sys.argv[1:]])
