"""Score records with a trained model: ``python scripts/predict.py RUN.yaml``; the same as ``opboost predict``."""

import sys

from parties.cli import app

if __name__ == "__main__":
    app(["predict", *sys.argv[1:]])
