"""A's partitions whose noised columns are drawn: fitted to a sample of all rows, drawn where the rows are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.columns import Column, OwnColumn, noised_sources
from opboost.fitting.noise_correction import COMPARED_ROWS, LEAST_ROWS
from opboost.fitting.noised_table import NoiseChoice
from opboost.fitting.partitioned import SampleFit, fit_sample
from opboost.fitting.recipe import Recipe
from opboost.trees.losses import Loss
from opboost.vertical import binned_column
from parties.cluster.training_partitions import OwnPartitions, RankPartitions, columns_of, read_rows
from parties.storage.atomic_files import make_folder, replacing

if TYPE_CHECKING:
    from distributed import Client

_Sampled = tuple[list[Values], Values, list[NDArray[np.unsignedinteger]]]


def fit_to_sample(
    own: OwnPartitions, released: Sequence[RankPartitions], recipe: Recipe, *, client: Client
) -> SampleFit | None:
    """Fit what lies behind the noised columns to rows of all partitions; None if there is too little to fit."""
    lengths = _lengths(own)
    if sum(lengths) < LEAST_ROWS or all(release is None for partitions in released for release in partitions.releases):
        return None
    share, rng = min(1.0, COMPARED_ROWS / max(sum(lengths), 1)), np.random.default_rng(recipe.seed)
    chosen = [np.sort(rng.permutation(n)[: round(n * share)]) for n in lengths]
    sample = partial(_sample, own, released, recipe.loss)
    samples: list[_Sampled] = client.gather(client.map(sample, list(range(len(lengths))), chosen, pure=False))
    labels = np.concatenate([part[1] for part in samples])
    columns: list[Column] = []
    for c, column in enumerate(columns_of(own, released)):
        if isinstance(column, OwnColumn):
            columns.append(replace(column, values=np.concatenate([part[0][c] for part in samples])))
        else:
            columns.append(replace(column, ranks=np.concatenate([part[2][c - len(own.columns)] for part in samples])))
    sources = noised_sources(columns)
    if not sources or len(labels) < LEAST_ROWS:
        return None
    most = recipe.parameters.max_bin
    binned = (None if c in sources else binned_column(column, None, max_bin=most) for c, column in enumerate(columns))
    rows = np.concatenate([picked + start for picked, start in zip(chosen, _starts(lengths), strict=True)])
    return fit_sample(binned, sources, labels, rows, recipe, n_columns=len(columns))


def corrected(
    fit: SampleFit, own: OwnPartitions, released: Sequence[RankPartitions], loss: Loss, *, client: Client
) -> list[tuple[Sequence[RankPartitions], float]]:
    """The released columns that each ensemble of trees is grown on, and its share in the scores."""
    if fit.choice is NoiseChoice.ALONE and own.columns:
        return [((), 1.0)]
    alone = [((), 1.0 - fit.share)] if own.columns and fit.share != 1.0 else []
    if fit.choice in (NoiseChoice.ALONE, NoiseChoice.PLAIN):
        return [(released, fit.share), *alone]
    lengths = _lengths(own)
    targets = [tuple(path.parent / "drawn" / path.name for path in partitions.paths) for partitions in released]
    for paths in targets:
        make_folder(paths[0].parent)
    draw = partial(_draw, fit, own, released, loss, sum(lengths))
    parts, of_parts = list(range(len(lengths))), list(zip(*targets, strict=True))
    have_missing = np.any(client.gather(client.map(draw, parts, _starts(lengths), of_parts, pure=False)), axis=0)
    n_versions, drawn, first = len(fit.turns(sum(lengths))), [], 0
    for partitions, paths in zip(released, targets, strict=True):
        missing = tuple(have_missing[first : (first := first + len(partitions.n_ranks))].tolist())
        drawn.append(replace(partitions, paths=paths, have_missing=missing, n_versions=n_versions))
    return [(drawn, fit.share), *alone]


def _lengths(own: OwnPartitions) -> list[int]:
    return [pq.read_metadata(path).num_rows for path in own.paths]


def _starts(lengths: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(lengths).tolist()[:-1]]


def _sample(
    own: OwnPartitions, released: Sequence[RankPartitions], loss: Loss, part: int, rows: NDArray[np.int64]
) -> _Sampled:
    values, labels, ranks = read_rows(own, released, loss, part)
    return [column[rows] for column in values], labels[rows], [column[rows] for column in ranks]


def _draw(
    fit: SampleFit,
    own: OwnPartitions,
    released: Sequence[RankPartitions],
    loss: Loss,
    n_rows: int,
    part: int,
    first_row: int,
    targets: Sequence[Path],
) -> list[bool]:
    """Write one partition's versions; returns per column whether a row is missing."""
    values, labels, ranks = read_rows(own, released, loss, part)
    counts = [n for partitions in released for n in partitions.n_ranks]
    columns = [*values, *(np.where(r == n, np.nan, r.astype(np.float64)) for r, n in zip(ranks, counts, strict=True))]
    rank_columns = [number - len(values) for number in fit.numbers]
    drawn = fit.versions(columns, [ranks[c] for c in rank_columns], labels, first_row=first_row, n_rows=n_rows)
    rank_versions = [np.tile(column, len(fit.turns(n_rows))) for column in ranks]
    for c, versions in zip(rank_columns, drawn, strict=True):
        rank_versions[c] = versions
    unwritten = iter(rank_versions)
    for partitions, target in zip(released, targets, strict=True):
        table = pa.table({f"c{i}": next(unwritten) for i in range(len(partitions.n_ranks))})
        with replacing(target, writer=f".{uuid4().hex}") as unfinished:
            pq.write_table(table, unfinished, compression="LZ4")
    return [bool((column == n).any()) for column, n in zip(rank_versions, counts, strict=True)]
