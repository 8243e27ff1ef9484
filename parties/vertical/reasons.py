"""Reason codes: the columns that raised a record's score most, by their exact contributions."""

from __future__ import annotations

import numpy as np
import pandas as pd

from opboost.arrays import Values
from opboost.trees.tree import Ensemble
from parties.config.score_policy import RevealSection
from parties.errors import ConfigError


def check_reasons(ensemble: Ensemble, reveal: RevealSection) -> None:
    """Refuse reasons of models with several scores, and beside scores that are made coarse.

    Raises
    ------
    ConfigError
    """
    if ensemble.loss.n_outputs > 1:
        raise ConfigError(
            f"--reasons needs one score per record, but the model has {ensemble.loss.n_outputs}. Nothing was sent"
        )
    if reveal.words() is not None:
        raise ConfigError("--reasons tell more of a score than `reveal` lets out: leave one out. Nothing was sent")


def predicted_and_explained(ensemble: Ensemble, features: Values) -> Values:
    """Predictions and, behind them, the contributions of all columns, shape ``(n_rows, n_columns + 1)``."""
    return np.column_stack([ensemble.predict(features), ensemble.contributions(features)[:, 0, :-1]])


def reason_table(ensemble: Ensemble, contributions: Values, n_reasons: int) -> pd.DataFrame:
    """Names of the columns whose contributions to the raw score are positive, the largest first, `n_reasons` at most.

    A passive party's column has its party's name before the name that the party gave it. Cells without a reason are
    empty.
    """
    columns = ensemble.columns
    names = [column.name if column.owner is None else f"{column.owner}: {column.name}" for column in columns]
    order = np.argsort(-contributions, axis=1, kind="stable")[:, :n_reasons]
    chosen = np.array(names, dtype=object)[order]
    chosen[~(np.take_along_axis(contributions, order, axis=1) > 0)] = None
    return pd.DataFrame(chosen, columns=[f"reason_{k + 1}" for k in range(chosen.shape[1])])
