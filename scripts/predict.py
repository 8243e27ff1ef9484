"""Score records with a trained model: ``python scripts/predict.py RUN.yaml``; the same as ``opboost predict``."""

import sys

from parties.cli import main

if __name__ == "__main__":
    main(["predict", *sys.argv[1:]])
