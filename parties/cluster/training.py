"""A's training on Dask: XGBoost grows trees on partitions of ranks and of A's own columns.

The ranks are the features, so a split of XGBoost's on a rank column is a rank; the trees come back into our form, and
from there on everything is as with one machine: the owners resolve the listed tests, and the trees are bound to them.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opboost.errors import DataError, OpBoostError, ParameterError
from opboost.export.xgboost_model import from_xgboost
from opboost.fitting.partitioned import SampleFit
from opboost.fitting.recipe import Recipe, with_own_defaults
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import ColumnConstraints, Constraints
from opboost.trees.losses import Loss
from opboost.trees.tree import Ensemble, Tree
from opboost.trees.validation import History
from opboost.trees.xgboost_engine import training_settings
from opboost.vertical import TrainedTrees
from parties.cluster.dask_cluster import START_WAIT_S
from parties.cluster.drawn_partitions import corrected, fit_to_sample
from parties.cluster.kept_trees import KeptTrees
from parties.cluster.one_machine import grow_in_one_process, is_on_one_machine
from parties.cluster.training_partitions import (
    LABEL,
    WEIGHT,
    OwnPartitions,
    RankPartitions,
    columns_of,
    empty_rows,
    limits_of,
    load_rows,
    versions_of,
)
from parties.cluster.tree_cuts import by_cuts
from parties.errors import PartyError

if TYPE_CHECKING:
    from distributed import Client

# How often training is begun, if workers die.
ATTEMPTS = 3

# How long the scheduler may take to notice that a worker is gone.
NOTICE_S = 5.0

# Trees are grown in at most so many parts, of at least so many rounds each; what is lost with a process is one part.
MOST_PARTS, LEAST_AT_ONCE = 10, 10


def train_on_partitions(
    own: OwnPartitions,
    released: Sequence[RankPartitions],
    *,
    loss: Loss,
    parameters: BoostingParameters,
    client: Client,
    constraints: ColumnConstraints | None = None,
    seed: int | None = None,
    journal: Path | None = None,
    correct_noise: bool = True,
    left_open: frozenset[str] = frozenset(),
    wait_s: float,
) -> TrainedTrees:
    """Grow trees with XGBoost on a cluster; go on with the remaining workers if some die.

    Parameters
    ----------
    own : OwnPartitions
    released : sequence of RankPartitions
    loss : Loss
    parameters : BoostingParameters
    client : distributed.Client
        Of this party's own cluster.
    constraints : ColumnConstraints, optional
    seed : int, optional
        For row and column sampling.
    journal : Path, optional
        Folder in which finished trees are kept; another process that is given the same goes on after them.
    correct_noise : bool
        Learn through the noise of columns whose release is known (`opboost.fitting.partitioned`); drawn partitions are
        written beside the released ones.
    left_open : frozenset of str
        Parameters that are then set as suits noise.
    wait_s : float
        How long cluster processes wait for one another in one step. One that was killed while they met is noticed then.

    Returns
    -------
    TrainedTrees
        For `opboost.split_tests.list_tests` and `bind`; its columns have no rows.

    Raises
    ------
    DataError
        If partitions do not fit each other, or labels do not fit the loss.
    ParameterError
        If a parameter needs rows that are held out, or XGBoost is not installed.
    """
    if parameters.early_stopping_rounds is not None:
        raise ParameterError("engine: dask holds no rows out, so early_stopping_rounds cannot be kept")
    parameters.check_objective(loss)
    if any(len(other.paths) != len(own.paths) for other in released):
        raise DataError(f"every party must have {len(own.paths)} partitions, as the active party has")
    columns = columns_of(own, released)
    if not columns or not own.paths:
        raise DataError("training needs at least one column and one partition")
    fit: SampleFit | None = None
    parts: list[tuple[Sequence[RankPartitions], float]] = [(released, 1.0)]
    if correct_noise and loss.predicts_labels:
        own_parameters = with_own_defaults(parameters, left_open)
        limits = limits_of(own, released, loss, own_parameters, constraints)
        fit = _survive(
            client, partial(fit_to_sample, own, released, Recipe(own_parameters, loss, limits, seed), client=client)
        )
        if fit is not None:
            parameters = own_parameters
            parts = _survive(client, partial(corrected, fit, own, released, loss, client=client))
    trees: list[Tree] = []
    # Without own columns nothing has the rest of the scores, which start where those of every part do.
    base_scores, all_shares = np.zeros(loss.n_outputs), sum(share for _, share in parts)
    for of_part, share in parts:
        limits = limits_of(own, of_part, loss, parameters, constraints)
        grown = _grown(client, own, of_part, loss, parameters, limits, seed, journal, wait_s)
        trees += [tree.scaled(share) for tree in grown.trees]
        base_scores += share / all_shares * grown.base_scores
    bound, cuts = by_cuts(trees, columns)
    return TrainedTrees(bound, base_scores, loss, columns, cuts, History(), None if fit is None else fit.choice)


def _grown(
    client: Client,
    own: OwnPartitions,
    released: Sequence[RankPartitions],
    loss: Loss,
    parameters: BoostingParameters,
    limits: Constraints,
    seed: int | None,
    journal: Path | None,
    wait_s: float,
) -> Ensemble:
    settings = training_settings(parameters, limits, loss, seed)
    settings |= {"max_bin": parameters.max_bin, "scale_pos_weight": parameters.scale_pos_weight, "nthread": None}
    if parameters.base_score is not None:
        settings["base_score"] = parameters.base_score
    of_released = [(column.owner, column.n_ranks, column.cuts, column.n_versions) for column in released]
    key = repr((sorted(settings.items()), own.columns, of_released))
    kept = KeptTrees(None if journal is None else journal / f"trees-{hashlib.sha256(key.encode()).hexdigest()[:16]}")
    grow = partial(_train, client, own, released, loss, settings, parameters.n_estimators, kept, wait_s)
    return from_xgboost(_survive(client, grow))


def _survive(client: Client, grow: Callable[[], Any]) -> Any:
    """Train; if that fails and a worker is gone, once more. Partitions are read anew, nothing else is lost."""
    for attempt in range(1, ATTEMPTS + 1):
        workers = set(client.nthreads())
        try:
            return grow()
        except (OpBoostError, PartyError):
            raise
        except Exception:  # XGBoost, Dask and sockets each tell a lost worker in their own way
            if attempt == ATTEMPTS or not _has_lost(client, workers):
                raise
            client.wait_for_workers(1, timeout=START_WAIT_S)
    raise AssertionError


def _train(
    client: Client,
    own: OwnPartitions,
    released: Sequence[RankPartitions],
    loss: Loss,
    settings: Mapping[str, Any],
    n_rounds: int,
    kept: KeptTrees,
    wait_s: float,
) -> Any:
    try:
        import dask.dataframe as dd
        import distributed
        from xgboost import dask as distributed_xgboost
        from xgboost.collective import Config
    except ImportError:
        raise ParameterError(
            "engine: dask needs Dask and XGBoost, which are not installed; `pip install 'opboost[dask]'` installs them"
        ) from None
    load = partial(load_rows, own, tuple(released), loss)
    rounds = partial(_next_rounds, n_rounds, max(LEAST_AT_ONCE, -(-n_rounds // MOST_PARTS)))
    if is_on_one_machine(client):
        return grow_in_one_process(client, load, len(own.paths), settings, rounds, kept)
    rows = client.persist(dd.from_map(load, list(range(len(own.paths))), meta=empty_rows(own, released)))
    # XGBoost itself would only say that some partition could not be had.
    for partition in distributed.wait(distributed.futures_of(rows)).done:
        if partition.status != "finished":
            partition.result()
    features = [name for name in rows.columns if name not in (LABEL, WEIGHT)]
    weights = rows[WEIGHT] if versions_of(released) > 1 else None
    matrix = distributed_xgboost.DaskQuantileDMatrix(
        client, rows[features], rows[LABEL], weight=weights, max_bin=settings["max_bin"]
    )
    # Whoever waits for a process that is gone is free again after this, in place of XGBoost's five minutes; those who
    # still meet would wait for ever.
    limit = Config(timeout=math.ceil(wait_s), tracker_timeout=math.ceil(wait_s))

    def train(of_part: dict[str, Any], n_more: int, booster: Any) -> Any:
        found = distributed_xgboost.train(
            client, of_part, matrix, num_boost_round=n_more, xgb_model=booster, coll_cfg=limit
        )
        return found["booster"]

    return kept.grown(rounds, settings, train)


def _next_rounds(n_rounds: int, at_once: int, n_done: int) -> int:
    """How many rounds are grown, and kept, next."""
    return min(at_once, n_rounds - n_done)


def _has_lost(client: Client, workers: set[str]) -> bool:
    end = time.monotonic() + NOTICE_S
    while time.monotonic() < end:
        if workers - set(client.nthreads()):
            return True
        time.sleep(0.1)
    return False
