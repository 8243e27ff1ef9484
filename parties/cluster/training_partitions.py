"""A's partitions to train on: own columns, labels and ranks side by side, in one or several versions of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.columns import Column, OwnColumn, RankColumn
from opboost.denoise.channel import ColumnRelease
from opboost.errors import DataError, ParameterError
from opboost.preprocess import own_features
from opboost.schema import ColumnSchema, Kind
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import ColumnConstraints, Constraints
from opboost.trees.losses import Loss
from parties.tables.data_files import Stamp, check_unchanged
from parties.tables.labels import read_labels
from parties.tables.parquet_files import read_stored
from parties.vertical.release_offer import rank_type

# Of whole numbers, float32 holds these.
MAX_RANKS = 2**24

LABEL, WEIGHT = "label", "weight"


@dataclass(frozen=True, slots=True)
class OwnPartitions:
    """The active party's columns and label, as Parquet partitions in the order of the agreed records.

    Attributes
    ----------
    paths : tuple of Path
    columns : tuple of ColumnSchema
        Numbers and ordered categories.
    label : str
    stamps : tuple of Stamp, optional
        Of the files when they were checked, as `stamp_of` gives them; None for a run's own copies.
    """

    paths: tuple[Path, ...]
    columns: tuple[ColumnSchema, ...]
    label: str
    stamps: tuple[Stamp, ...] | None = None

    def __post_init__(self) -> None:
        unordered = [column.name for column in self.columns if column.kind is Kind.UNORDERED]
        if unordered:
            raise ParameterError(
                f"engine: dask takes own columns of numbers and of ordered categories; {', '.join(unordered)} have none"
            )


@dataclass(frozen=True, slots=True)
class RankPartitions:
    """The columns that one passive party released, as partitions that match `OwnPartitions`.

    Attributes
    ----------
    owner : str
    paths : tuple of Path
        With columns ``c0``, ``c1``, ...
    n_ranks : tuple of int
        Per column.
    have_missing : tuple of bool
        Per column, whether some row holds the number of ranks, for missing.
    cuts : tuple of ndarray of int64 or None
        Per column, the agreed grid, if there is one: trees are then grown on the numbers of its cells.
    releases : tuple of ColumnRelease or None
        Per column, what its owner told of the release.
    n_versions : int
        How many versions of its rows a partition holds, one after the other.
    names : tuple of str, optional
        What the columns were offered as; by default as in the files.
    """

    owner: str
    paths: tuple[Path, ...]
    n_ranks: tuple[int, ...]
    have_missing: tuple[bool, ...]
    cuts: tuple[NDArray[np.int64] | None, ...]
    releases: tuple[ColumnRelease | None, ...]
    n_versions: int = 1
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        # A column of nothing but missing cells has no rank.
        least = [0 if has_missing else 1 for has_missing in self.have_missing]
        if len(self.n_ranks) != len(least) or any(
            not low <= n <= MAX_RANKS for low, n in zip(least, self.n_ranks, strict=True)
        ):
            raise ParameterError(f"engine: dask takes columns of 1 to {MAX_RANKS} ranks; {self.owner} has others")


def columns_of(own: OwnPartitions, released: Sequence[RankPartitions]) -> tuple[Column, ...]:
    """All columns in the order of the features, without their rows."""
    own_columns = (OwnColumn(column.name, np.empty(0)) for column in own.columns)
    rank_columns = (
        RankColumn(
            partitions.owner,
            i,
            partitions.names[i] if partitions.names else f"c{i}",
            np.empty(0, np.uint8),
            n,
            release,
            cuts,
        )
        for partitions in released
        for i, (n, release, cuts) in enumerate(
            zip(partitions.n_ranks, partitions.releases, partitions.cuts, strict=True)
        )
    )
    return (*own_columns, *rank_columns)


def limits_of(
    own: OwnPartitions,
    released: Sequence[RankPartitions],
    loss: Loss,
    parameters: BoostingParameters,
    constraints: ColumnConstraints | None,
) -> Constraints:
    """Constraints on the trees of these partitions."""
    names = [column.name for column in columns_of(own, released)]
    chosen = constraints or ColumnConstraints()
    chosen = chosen if released else chosen.among(names)
    step = parameters.delta_step_of(loss)
    return chosen.on(names, are_categorical=[False] * len(names), max_delta_step=step)


def versions_of(released: Sequence[RankPartitions]) -> int:
    """Number of versions of every row."""
    return max((partitions.n_versions for partitions in released), default=1)


def empty_rows(own: OwnPartitions, released: Sequence[RankPartitions]) -> pd.DataFrame:
    """A table without rows that says which types those of `load_rows` have."""
    kinds: list[np.dtype[Any]] = [np.dtype(np.float32)] * len(own.columns)
    for partitions in released:
        kinds += [
            _kind(n, has_missing) for n, has_missing in zip(partitions.n_ranks, partitions.have_missing, strict=True)
        ]
    frame = {f"f{i}": np.empty(0, kind) for i, kind in enumerate(kinds)}
    return pd.DataFrame({**frame, LABEL: np.empty(0, np.float32), WEIGHT: np.empty(0, np.float32)})


def _kind(n_ranks: int, has_missing: bool) -> np.dtype[Any]:
    """As they lie in the file; a column with missing cells needs NaN."""
    return np.dtype(np.float32) if has_missing else rank_type(n_ranks)


def load_rows(own: OwnPartitions, released: Sequence[RankPartitions], loss: Loss, part: int) -> pd.DataFrame:
    """A partition's features, labels and weights, on a worker; versions of a row share its weight."""
    values, labels, ranks = read_rows(own, released, loss, part)
    n_versions = versions_of(released)
    columns = [np.tile(column.astype(np.float32), n_versions) for column in values]
    descriptions = [
        pair
        for partitions in released
        for pair in zip(partitions.n_ranks, partitions.have_missing, partitions.cuts, strict=True)
    ]
    columns += [_feature(column, *description) for column, description in zip(ranks, descriptions, strict=True)]
    frame = {f"f{i}": column for i, column in enumerate(columns)}
    repeated, share = np.tile(labels.astype(np.float32), n_versions), np.float32(1 / n_versions)
    return pd.DataFrame({**frame, LABEL: repeated, WEIGHT: np.full(len(repeated), share)})


def read_rows(
    own: OwnPartitions, released: Sequence[RankPartitions], loss: Loss, part: int
) -> tuple[list[Values], Values, list[NDArray[np.unsignedinteger]]]:
    """A partition's own columns, labels and ranks, these for each version of the rows.

    Raises
    ------
    DataError, TableError
        If rows, columns or ranks are others than were agreed, or the own file was changed since.
    """
    table = read_stored(own.paths[part], [*(column.name for column in own.columns), own.label])
    if own.stamps is not None:
        check_unchanged(own.paths[part], own.stamps[part])
    labels = read_labels(own.paths[part], table[own.label], own.label)
    loss.check_labels(labels)
    rank_columns: list[NDArray[np.unsignedinteger]] = []
    for partitions in released:
        ranks = read_stored(partitions.paths[part])
        names = [f"c{i}" for i in range(len(partitions.n_ranks))]
        if len(ranks) != len(labels) * partitions.n_versions or list(ranks) != names:
            raise DataError(f"partition {part} of {partitions.owner} has other rows or columns than were agreed")
        for name, n, has_missing in zip(names, partitions.n_ranks, partitions.have_missing, strict=True):
            rank_columns.append(ranks[name].to_numpy())
            if rank_columns[-1].dtype != rank_type(n) or rank_columns[-1].max(initial=0) > n - (not has_missing):
                raise DataError(
                    f"{partitions.owner}'s partition {part} holds ranks that were not offered. No tree was grown"
                )
    return list(own_features(table, own.columns).values()), labels, rank_columns


def _feature(
    ranks: NDArray[np.unsignedinteger], n_ranks: int, has_missing: bool, cuts: NDArray[np.int64] | None
) -> NDArray[Any]:
    """One column's ranks, or the numbers of their cells; NaN for missing."""
    feature = ranks if cuts is None else np.searchsorted(cuts, ranks).astype(ranks.dtype)
    return np.where(ranks == n_ranks, np.float32(np.nan), feature.astype(np.float32)) if has_missing else feature
