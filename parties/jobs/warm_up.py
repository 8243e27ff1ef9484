"""Compiled loops are loaded while the peer is not there yet: the first call of each takes a tenth of a second or more.

Constants go through the same code that the run goes through later, and what comes out is thrown away.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from opboost import rng
from opboost.columns import Column, OwnColumn, RankColumn
from opboost.desensitize import ColumnMechanism, desensitize
from opboost.preprocess import EncodedColumn
from opboost.schema import Kind
from opboost.trees.boosting import BoostingParameters
from opboost.trees.kernels.division import divide_nodes
from opboost.trees.losses import LambdaRank, Logistic, Loss, Ordinal, Softmax
from opboost.vertical import train

# Enough for one split, whatever the objective's labels.
_N_ROWS = 64


def compiled_before() -> bool:
    """Whether the compiled loops lie in numba's cache already, as after the first run on a machine."""
    return any(Path(divide_nodes.stats.cache_path).glob("*.divide_nodes-*.nbi"))


def warm_drawing(mechanisms: Sequence[ColumnMechanism]) -> None:
    """Draw from one mechanism of every kind, for a code that is nobody's."""
    kinds = {(type(mechanism.value), mechanism.settings.law): mechanism for mechanism in mechanisms}
    for mechanism in kinds.values():
        code = 0 if mechanism.schema.kind is Kind.UNORDERED else mechanism.settings.domain.lo
        column = EncodedColumn(np.array([code], np.int64), np.zeros(1, np.bool_), 0)
        desensitize(mechanism, column, rng=rng.seeded(0))


@cache
def warm_training(loss: Loss) -> None:
    """Grow two small trees on an own column and one of ranks, one of them in a single call and one level by level.

    Of each loss once in a process, which may train often.
    """
    steps = np.arange(_N_ROWS)
    columns: list[Column] = [
        OwnColumn("own", steps.astype(np.float64)),
        RankColumn("peer", 0, "ranks", steps.astype(np.uint32), _N_ROWS),
    ]
    loss = loss.singles[0]
    # Classes 0 and 1; amounts and times are none of them 0.
    labels = (steps % 2 + (not isinstance(loss, Logistic | Softmax | Ordinal))).astype(np.float64)
    labels = np.column_stack([labels, np.zeros(_N_ROWS)]) if isinstance(loss, LambdaRank) else labels
    for share in (1.0, 0.5):
        few = BoostingParameters(n_estimators=1, max_depth=2, colsample_bynode=share)
        train(columns, labels, np.ones(_N_ROWS), loss=loss, parameters=few)
