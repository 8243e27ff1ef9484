"""Streams of records: a training among owners that goes on from a finished one, on records that have arrived since.

With S-GBDT's individual filter, earlier records go on as long as they can pay. What they have paid follows from their
rows and the finished trees, so these are walked again, and nobody has to keep accounts of records. Without the filter
they have spent their budget, and the records that are new train alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from opboost.arrays import Values
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import RecordHolder
from opboost.privacy.record_guarantee import RecordGuarantee
from opboost.trees.holder import RowHolder, SummedHolders
from opboost.trees.tree import Ensemble, Tree


@dataclass(frozen=True, slots=True)
class Arrival:
    """Records of one owner that came together.

    Attributes
    ----------
    n_rows : int
        How many rows the owner had then, these included: they are its last ones.
    n_trees : int
        How many trees were finished before.
    """

    n_rows: int
    n_trees: int


def n_arrived(arrivals: Sequence[Arrival]) -> int:
    """Rows of an owner after these arrivals."""
    return arrivals[-1].n_rows if arrivals else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTraining:
    """A finished training among owners that another one goes on from.

    Attributes
    ----------
    run : str
        Its name.
    model : Ensemble
    digest : str
        Of the model, which must be the same at everybody's.
    trees : tuple of Tree
        Of S-GBDT, its trees on values, with leaves on the scale of training, at an owner; a coordinator needs none.
    arrivals : tuple of Arrival
        Of this owner's records.
    n_records : int
        About how many records of all owners the model has seen: public, for the recommended recipe.
    charged_run : str
        The run whose charge is for it as well: itself, or an earlier one if this owner has answered nothing in it.
    charge_holder : str
        Of that charge, which tells the run from another one of its name.
    """

    run: str
    model: Ensemble
    digest: str
    trees: tuple[Tree, ...] = ()
    arrivals: tuple[Arrival, ...] = ()
    n_records: int = 0
    charged_run: str = ""
    charge_holder: str = ""

    @property
    def n_rows(self) -> int:
        """Rows of this owner that have been trained on: its first ones."""
        return n_arrived(self.arrivals)

    def together(self, promise: RecordGuarantee) -> RecordGuarantee:
        """The guarantee of a training that goes on from this one, which is for both."""
        words = (
            f"This is the guarantee of the run and of {self.run}, from which it goes on, together: provided "
            "that no new record is a copy of an earlier one."
        )
        return replace(promise, protected=f"{promise.protected} {words}")

    def holder(
        self,
        rows: Values,
        labels: Values,
        *,
        grid: PublicGrid,
        has_filter: bool,
        records: Callable[[Values, Values], RecordHolder],
    ) -> RowHolder:
        """Row holder of earlier records, with what they have paid, and of new ones, which are the last rows.

        Parameters
        ----------
        rows : ndarray of float64, shape (n_rows, n_columns)
        labels : ndarray of float64, shape (n_rows,)
        grid : PublicGrid
            Whose cells the trees divide.
        has_filter : bool
            Whether earlier records go on.
        records : callable
            Makes the holder of some records, of which nothing was asked.
        """
        trees = [grid.in_cells(tree) for tree in self.trees]
        holders, first = [], 0
        for arrival in (*self.arrivals, Arrival(len(rows), len(trees))):
            here = slice(first, arrival.n_rows)
            first = arrival.n_rows
            if not has_filter and arrival.n_trees < len(trees):
                continue
            holder = records(rows[here], labels[here])
            holder.catch_up(trees[: arrival.n_trees])
            holder.pay_again(trees[arrival.n_trees :])
            holders.append(holder)
        return SummedHolders(holders)
