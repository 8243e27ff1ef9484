"""A's training on Dask: XGBoost grows trees on partitions of ranks and of A's own columns.

The ranks are the features, so a split of XGBoost's on a rank column is a rank; the trees come back into our form, and
from there on everything is as with one machine: the owners resolve the listed tests, and the trees are bound to them.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from opboost.errors import DataError, OpBoostError, ParameterError
from opboost.export.xgboost_model import from_xgboost
from opboost.preprocess import own_features
from opboost.schema import ColumnSchema, Kind
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.losses import Loss
from opboost.trees.validation import History
from opboost.trees.xgboost_engine import training_settings
from opboost.vertical import Column, OwnColumn, RankColumn, TrainedTrees
from parties.cluster.kept_trees import KeptTrees
from parties.cluster.tree_cuts import by_cuts
from parties.errors import PartyError
from parties.tables.labels import read_labels
from parties.tables.parquet_files import read_stored
from parties.vertical.release_offer import rank_type

if TYPE_CHECKING:
    from distributed import Client

# How often training is begun, if workers die.
ATTEMPTS = 3

# How long the scheduler may take to notice that a worker is gone.
NOTICE_S = 5.0

# Of whole numbers, float32 holds these.
MAX_RANKS = 2**24

# Trees are grown in at most so many parts, of at least so many rounds each; what is lost with a process is one part.
MOST_PARTS, LEAST_AT_ONCE = 10, 10

_LABEL = "label"


@dataclass(frozen=True, slots=True)
class OwnPartitions:
    """What the active party holds, as Parquet partitions in the order of the agreed records.

    Attributes
    ----------
    paths : tuple of Path
    columns : tuple of ColumnSchema
        Numbers and ordered categories.
    label : str
    """

    paths: tuple[Path, ...]
    columns: tuple[ColumnSchema, ...]
    label: str

    def __post_init__(self) -> None:
        unordered = [column.name for column in self.columns if column.kind is Kind.UNORDERED]
        if unordered:
            raise ParameterError(
                f"engine: dask takes own columns of numbers and of ordered categories; {', '.join(unordered)} have none"
            )


@dataclass(frozen=True, slots=True)
class RankPartitions:
    """What one passive party released, partition by partition as `OwnPartitions`; columns ``c0``, ``c1``, ...

    Attributes
    ----------
    owner : str
    paths : tuple of Path
    n_ranks : tuple of int
        Per column.
    have_missing : tuple of bool
        Per column, whether some row holds the number of ranks, for missing.
    cuts : tuple of ndarray of int64 or None
        Per column, the agreed grid, if there is one: trees are then grown on the numbers of its cells.
    """

    owner: str
    paths: tuple[Path, ...]
    n_ranks: tuple[int, ...]
    have_missing: tuple[bool, ...]
    cuts: tuple[NDArray[np.int64] | None, ...]

    def __post_init__(self) -> None:
        # A column of nothing but missing cells has no rank.
        least = [0 if has_missing else 1 for has_missing in self.have_missing]
        if len(self.n_ranks) != len(least) or any(
            not low <= n <= MAX_RANKS for low, n in zip(least, self.n_ranks, strict=True)
        ):
            raise ParameterError(f"engine: dask takes columns of 1 to {MAX_RANKS} ranks; {self.owner} has others")


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
    columns = _columns(own, released)
    if not columns or not own.paths:
        raise DataError("training needs at least one column and one partition")
    step = loss.max_delta_step if parameters.max_delta_step is None else parameters.max_delta_step
    limits = (constraints or ColumnConstraints()).on(
        [column.name for column in columns], are_categorical=[False] * len(columns), max_delta_step=step
    )
    settings = training_settings(parameters, limits, loss, seed)
    settings |= {"max_bin": parameters.max_bin, "scale_pos_weight": parameters.scale_pos_weight, "nthread": None}
    if parameters.base_score is not None:
        settings["base_score"] = parameters.base_score
    key = repr((sorted(settings.items()), own.columns, [(one.owner, one.n_ranks, one.cuts) for one in released]))
    kept = KeptTrees(None if journal is None else journal / f"trees-{hashlib.sha256(key.encode()).hexdigest()[:16]}")
    grow = partial(_train, client, own, released, loss, settings, parameters.n_estimators, kept, wait_s)
    booster = _survive(client, grow)
    ensemble = from_xgboost(booster)
    trees, cuts = by_cuts(ensemble.trees, columns)
    return TrainedTrees(trees, ensemble.base_scores, loss, columns, cuts, History())


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
            client.wait_for_workers(1, timeout=NOTICE_S)
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
    load = partial(_load, own, tuple(released), loss)
    rows = client.persist(dd.from_map(load, list(range(len(own.paths))), meta=_meta(own, released)))
    # XGBoost itself would only say that some partition could not be had.
    for partition in distributed.wait(distributed.futures_of(rows)).done:
        if partition.status != "finished":
            partition.result()
    features = [name for name in rows.columns if name != _LABEL]
    matrix = distributed_xgboost.DaskQuantileDMatrix(client, rows[features], rows[_LABEL], max_bin=settings["max_bin"])
    booster, at_once = kept.load(), max(LEAST_AT_ONCE, -(-n_rounds // MOST_PARTS))
    while (n_done := 0 if booster is None else booster.num_boosted_rounds()) < n_rounds:
        # Sampling begins anew with every part, which must not draw the same rows and columns.
        of_part = {**settings, "seed": settings["seed"] + n_done}
        n_more = min(at_once, n_rounds - n_done)
        # Whoever waits for a process that is gone is free again after this, in place of XGBoost's five minutes.
        limit = Config(timeout=math.ceil(wait_s))
        found = distributed_xgboost.train(
            client, of_part, matrix, num_boost_round=n_more, xgb_model=booster, coll_cfg=limit
        )
        booster = found["booster"]
        kept.save(booster)
    return booster


def _has_lost(client: Client, workers: set[str]) -> bool:
    end = time.monotonic() + NOTICE_S
    while time.monotonic() < end:
        if workers - set(client.nthreads()):
            return True
        time.sleep(0.1)
    return False


def _columns(own: OwnPartitions, released: Sequence[RankPartitions]) -> tuple[Column, ...]:
    """All columns in the order of the features, without their rows."""
    mine = (OwnColumn(column.name, np.empty(0)) for column in own.columns)
    theirs = (
        RankColumn(other.owner, i, f"c{i}", np.empty(0, np.uint8), n, cuts=cuts)
        for other in released
        for i, (n, cuts) in enumerate(zip(other.n_ranks, other.cuts, strict=True))
    )
    return (*mine, *theirs)


def _meta(own: OwnPartitions, released: Sequence[RankPartitions]) -> pd.DataFrame:
    """A table without rows that says which types those of a partition have."""
    kinds: list[np.dtype[Any]] = [np.dtype(np.float32)] * len(own.columns)
    for other in released:
        kinds += [_kind(n, has) for n, has in zip(other.n_ranks, other.have_missing, strict=True)]
    frame = {f"f{i}": np.empty(0, kind) for i, kind in enumerate(kinds)}
    return pd.DataFrame({**frame, _LABEL: np.empty(0, np.float32)})


def _kind(n_ranks: int, has_missing: bool) -> np.dtype[Any]:
    """As they lie in the file; a column with missing cells needs NaN."""
    return np.dtype(np.float32) if has_missing else rank_type(n_ranks)


def _load(own: OwnPartitions, released: Sequence[RankPartitions], loss: Loss, part: int) -> pd.DataFrame:
    """A partition's features and labels, on a worker."""
    names = [column.name for column in own.columns]
    table = read_stored(own.paths[part], [*names, own.label])
    labels = read_labels(own.paths[part], table[own.label], own.label)
    loss.check_labels(labels)
    columns = [values.astype(np.float32) for values in own_features(table, own.columns).values()]
    for other in released:
        ranks = read_stored(other.paths[part])
        if len(ranks) != len(labels) or list(ranks) != [f"c{i}" for i in range(len(other.n_ranks))]:
            raise DataError(f"partition {part} of {other.owner} has other rows or columns than were agreed")
        where = f"{other.owner}'s partition {part}"
        for i, (n, has_missing, cuts) in enumerate(zip(other.n_ranks, other.have_missing, other.cuts, strict=True)):
            columns.append(_checked(ranks[f"c{i}"].to_numpy(), n, has_missing, cuts, where))
    frame = {f"f{i}": column for i, column in enumerate(columns)}
    return pd.DataFrame({**frame, _LABEL: labels.astype(np.float32)})


def _checked(ranks: Any, n_ranks: int, has_missing: bool, cuts: NDArray[np.int64] | None, where: str) -> Any:
    """One column's ranks, or the numbers of their cells, as a feature; NaN for missing."""
    if ranks.dtype != rank_type(n_ranks) or ranks.max(initial=0) > n_ranks - (not has_missing):
        raise DataError(f"{where} holds ranks that were not offered. No tree was grown")
    feature = ranks if cuts is None else np.searchsorted(cuts, ranks).astype(ranks.dtype)
    return np.where(ranks == n_ranks, np.float32(np.nan), feature.astype(np.float32)) if has_missing else feature
