"""Partitioned rows of a worker: the state held of each Parquet file, and a row holder over all of them.

Of a partition only its cells, labels, scores and gradients are held; values are read again where new cells are told.
Sums are whole numbers, so that partitions answer what one table would, to the bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Protocol

import numpy as np

from opboost.arrays import Nodes, Sums, Values
from opboost.fit_quality import FitQuality, fit_quality
from opboost.horizontal.rows.client_rows import HeldRecords
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.metrics import default_metric
from opboost.rng import BitSource, Words
from opboost.trees.splitting import Splits
from opboost.trees.tree import Ensemble, Tree
from parties.config.recipes import SummedRecipe
from parties.horizontal.partition_files import PartFile, check_ids
from parties.horizontal.row_table import OWN_ROWS


@dataclass(slots=True)
class HeldPart:
    """State of a partition between calls.

    Attributes
    ----------
    file : PartFile
    records : HeldRecords
    digest : str
        Of the rows as they were read.
    sums : ndarray of int64
        The answer to the last question.
    """

    file: PartFile
    records: HeldRecords
    digest: str
    sums: Sums

    @classmethod
    def read(cls, file: PartFile, recipe: SummedRecipe, *, coins: Words | None) -> HeldPart:
        """Read a partition and put its rows into cells."""
        rows = file.read()
        return cls(file, recipe.records(rows.values, rows.labels, coins=coins), rows.digest, np.zeros(0, np.int64))

    def __sizeof__(self) -> int:
        return self.records.__sizeof__() + self.sums.nbytes

    def start_tree(self, output: int) -> None:
        self.records.start_tree(output)

    def divide(self, splits: Splits) -> None:
        self.records.divide(splits)

    def finish_tree(self, tree: Tree) -> None:
        self.records.finish_tree(tree)

    def place(self, columns: PublicGrid) -> None:
        """Read the rows again and assign them to other cells."""
        self.records.rebin(columns.place(self.file.read_again(self.digest).values))

    def check_digest(self, digest: str) -> None:
        """Refuse rows other than those of this digest, where a lost state was read again."""
        self.file.check_digest(self.digest, digest)

    def totals(self, nodes: Nodes) -> None:
        """Compute into `sums`."""
        self.sums = self.records.totals(nodes)

    def histograms(self, nodes: Nodes, n_bins: int) -> None:
        """Compute into `sums`."""
        self.sums = np.empty((len(nodes), 2, n_bins), np.int64)
        self.records.write_histograms(nodes, self.sums)


Call = Callable[[HeldPart], object]
"""A call of a method of `HeldPart`, with its arguments."""


class Parts(Protocol):
    """Interface of a set of partitions, wherever they are."""

    @property
    def digests(self) -> list[str]:
        """Digests of every partition's rows."""

    def ask(self, calls: Sequence[Call]) -> Sums:
        """Apply these calls to every partition; returns the summed answers to the last of them."""

    def predictions(self, model: Ensemble) -> list[tuple[Values, Values]]:
        """Labels and predictions of every partition's rows."""


class PartsHere:
    """Partitions in this process, read one after the other."""

    def __init__(self, files: Sequence[PartFile], recipe: SummedRecipe, *, coins: BitSource | None) -> None:
        check_ids([file.names() for file in files])
        self._parts = [HeldPart.read(file, recipe, coins=coins) for file in files]

    @property
    def digests(self) -> list[str]:
        return [part.digest for part in self._parts]

    def ask(self, calls: Sequence[Call]) -> Sums:
        # Every call on all partitions before the next one: sampled records take their coins in this order.
        for call in calls:
            for part in self._parts:
                call(part)
        return added([part.sums for part in self._parts])

    def predictions(self, model: Ensemble) -> list[tuple[Values, Values]]:
        return [part.file.predictions(part.digest, model) for part in self._parts]


class PartedRows:
    """Row holder over partitions: calls are collected until a sum is needed.

    Parameters
    ----------
    parts : Parts
    n_bins : int
        Of all columns' histograms together.
    """

    def __init__(self, parts: Parts, *, n_bins: int) -> None:
        self._parts = parts
        self._n_bins = n_bins
        self._told: list[Call] = []

    @property
    def digest(self) -> str:
        """Digest of everything that the answers depend on; it stays in the worker's own folder."""
        return hashlib.sha256("".join(self._parts.digests).encode()).hexdigest()

    def own_fit(self, model: Ensemble) -> FitQuality | None:
        """How a model fits the rows, from 16 bytes a row; None where labels cannot tell anything."""
        labels, predicted = (np.concatenate(each) for each in zip(*self._parts.predictions(model), strict=True))
        return fit_quality(model.loss, labels, predicted, basis=OWN_ROWS, metric=default_metric(model.loss))

    def start_tree(self, output: int) -> None:
        self._told.append(methodcaller("start_tree", output))

    def divide(self, splits: Splits) -> None:
        self._told.append(methodcaller("divide", splits))

    def finish_tree(self, tree: Tree) -> None:
        self._told.append(methodcaller("finish_tree", tree))

    def place(self, columns: PublicGrid) -> None:
        self._told.append(methodcaller("place", columns))

    def totals(self, nodes: Nodes) -> Sums:
        return self._ask(methodcaller("totals", nodes))

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        out[:] = self._ask(methodcaller("histograms", nodes, self._n_bins))

    def _ask(self, question: Call) -> Sums:
        calls, self._told = [*self._told, question], []
        return self._parts.ask(calls)


def added(sums: Sequence[Sums]) -> Sums:
    """The sum of several answers."""
    total = sums[0].copy()
    for other in sums[1:]:
        total += other
    return total
