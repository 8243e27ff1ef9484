"""Column references by position or by name, bounds in either form, and data frames' labels that are no names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opboost.errors import DataError, OpBoostError, ParameterError, is_integer, nearest, shown
from opboost.trees.constraints import ColumnConstraints

if TYPE_CHECKING:
    import pandas as pd

ColumnKey = int | str
Bounds = Mapping[ColumnKey, tuple[float, float]] | tuple[ArrayLike, ArrayLike] | None


@dataclass(frozen=True, slots=True)
class ColumnPositions:
    """The columns of a table, by position and by name.

    Attributes
    ----------
    names : tuple of str
    takes_numbers : bool
        Whether a column may be given by its position. It may not where labels of a data frame are other numbers.
    """

    names: tuple[str, ...]
    takes_numbers: bool = True

    def of(self, column: ColumnKey) -> int:
        """The position of a column that is given by position, from the end if negative, or by name.

        Where no column has the name, the one has it that scikit-learn's transformers have put a mark before, as in
        ``scaled__age``, if it is only one.
        """
        if is_integer(column):
            self._check_only_a_position(column)
            if -len(self.names) <= column < len(self.names):
                return int(column) % len(self.names)
        elif column in self.names:
            return self.names.index(column)
        cure = ""
        if column and isinstance(column, str):
            marked = [i for i, name in enumerate(self.names) if name.endswith(f"__{column}")]
            if len(marked) == 1:
                return marked[0]
            cure = nearest(column, self.names)
            if self.names == numbered(len(self.names)):
                cure = "; an array has no names: a pipeline keeps them with set_output(transform='pandas')"
        raise ParameterError(f"column {column!r} does not exist; there are {', '.join(self.names)}{cure}")

    def _check_only_a_position(self, number: int) -> None:
        """Refuse a number that may be a column's label as well, and then means another column."""
        label = str(number)
        if not self.takes_numbers or (label in self.names and self.names.index(label) != number):
            raise ParameterError(
                f"column {label} may be a position or a label, since columns are labelled with numbers that are not "
                "their positions. Give them labels that are texts, as X.columns = X.columns.map(str) does, and name "
                f"them by these, as {label!r}. Nothing was released"
            )

    def name_of(self, column: ColumnKey) -> str:
        """The name of a column that is given by position or by name."""
        return self.names[self.of(column)]

    def named(self, what: str, columns: object) -> set[str]:
        """The names of the columns that a parameter lists by position or by name, in an array or a list; None for none.

        Raises
        ------
        ParameterError
        """
        if columns is None:
            return set()
        if isinstance(columns, str) or not isinstance(columns, Collection) or getattr(columns, "ndim", 1) != 1:
            raise ParameterError(f"{what} must list columns by position or by name; got {shown(columns)}")
        return {self.name_of(column) for column in columns}

    def bounds(self, bounds: Bounds) -> dict[int, tuple[float, float]]:
        """Lower and upper bound by position, of a mapping by column or a pair of numbers or arrays."""
        if bounds is None:
            return {}
        n_columns = len(self.names)
        try:
            if isinstance(bounds, Mapping):
                return {self.of(column): (float(low), float(up)) for column, (low, up) in bounds.items()}
            lower, upper = (np.broadcast_to(_doubles(b), n_columns) for b in bounds)
        except OpBoostError:
            raise
        except (TypeError, ValueError):
            raise ParameterError(
                "bounds must map columns to (lower, upper) or be a pair of numbers or arrays, one entry per column"
            ) from None
        return {i: (float(lower[i]), float(upper[i])) for i in range(n_columns)}

    def constraints(
        self, monotone: Mapping[ColumnKey, int] | Sequence[int] | None, groups: Sequence[Sequence[ColumnKey]] | None
    ) -> ColumnConstraints:
        """Constraints by the names of the columns; `monotone` is a mapping by column or one number for each."""
        if monotone is not None and not isinstance(monotone, Mapping):
            if isinstance(monotone, str):
                raise ParameterError(
                    "monotone_constraints must be a mapping of columns to -1, 0 or 1, or a list or tuple of "
                    f"one of them for each column; got the text {shown(monotone)}. Nothing was trained"
                )
            if len(monotone) != len(self.names):
                raise ParameterError(
                    f"monotone_constraints as a sequence need one number for each of {len(self.names)} columns; got "
                    f"{len(monotone)}"
                )
            monotone = dict(zip(self.names, monotone, strict=True))
        return ColumnConstraints(
            {self.name_of(column): direction for column, direction in (monotone or {}).items()},
            [[self.name_of(column) for column in group] for group in groups or ()],
        )


def _doubles(bounds: ArrayLike) -> NDArray[np.float64]:
    given = np.asarray(bounds)
    if given.dtype.kind in "mM" or any(isinstance(one, np.datetime64 | np.timedelta64) for one in given.flat):
        raise TypeError("of dates and durations, NumPy makes numbers of whatever unit they are in")
    return given.astype(np.float64)


def column_names(estimator: Any) -> tuple[str, ...]:
    """The columns of a fitted estimator: as in its training table, or x0, x1, ... if that had no names."""
    if hasattr(estimator, "feature_names_in_"):
        return tuple(map(str, estimator.feature_names_in_))
    return numbered(estimator.n_features_in_)


def numbered(n_columns: int) -> tuple[str, ...]:
    """The names of columns that have none."""
    return tuple(f"x{i}" for i in range(n_columns))


def labels_of(table: Any) -> pd.Index | None:
    """The labels of a data frame's columns if none is a text; None for other tables, which have names or no labels."""
    # Run files need no data frames, and commands start without them.
    import pandas as pd

    if not isinstance(table, pd.DataFrame) or any(isinstance(label, str) for label in table.columns):
        return None
    # Labels that are categories are the same whatever other categories there are.
    return pd.Index(list(table.columns))


def are_positions(labels: pd.Index | None) -> bool:
    """Whether a number that names a column can only be its position: no label is a number, or all are positions."""
    if labels is None or not any(isinstance(label, Real) for label in labels):
        return True
    return list(labels) == list(range(len(labels)))


def check_labels(table: Any, trained: pd.Index | None) -> None:
    """Refuse a data frame whose columns are labelled otherwise than those that were trained on.

    scikit-learn compares texts alone. Other numbers of columns are left to it.

    Raises
    ------
    DataError
    """
    found = labels_of(table)
    if found is None or trained is None or len(found) != len(trained) or found.equals(trained):
        return
    place = next(i for i in range(len(found)) if not found[i : i + 1].equals(trained[i : i + 1]))
    raise DataError(
        f"the column at position {place} is labelled {found[place]}, and was {trained[place]} in the table that was "
        "trained on; give the same columns in the same order. Nothing was released"
    )
