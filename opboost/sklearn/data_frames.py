"""Data frames with categories, texts, truth values and dates as matrices of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.column_positions import ColumnPositions, are_positions, check_labels, labels_of, numbered
from opboost.errors import DataError, ParameterError
from opboost.preprocess import category_texts
from opboost.schema import Kind
from opboost.sklearn.days import days_of, has_times, kind_of

_TRUTH_VALUES = ("False", "True")


@dataclass(frozen=True, slots=True)
class PublicCategories:
    """The public list of a column's categories.

    Attributes
    ----------
    names : tuple of str
    kind : Kind
        ``ordered`` or ``unordered``.
    """

    names: tuple[str, ...]
    kind: Kind

    @classmethod
    def of(cls, bounds: Any) -> PublicCategories | None:
        """Bounds that are categories: pandas' type of them, or a list of texts; None if they are numbers."""
        if isinstance(bounds, pd.CategoricalDtype):
            return cls(_names(bounds), Kind.ORDERED if bounds.ordered else Kind.UNORDERED)
        is_list = isinstance(bounds, list | tuple) and bounds and all(isinstance(one, str) for one in bounds)
        return cls(tuple(bounds), Kind.UNORDERED) if is_list else None


@dataclass(frozen=True, slots=True)
class FrameEncoder:
    """Encoder of a data frame's columns as numbers, fitted to a training table.

    Numbers stay, truth values become 0 and 1 (with bounds, two public categories), dates and durations days (dates
    since 1970), categories and texts their position in a list; an empty cell is NaN.

    Attributes
    ----------
    categories : mapping of str to tuple of str
        By column, the categories of the training table; for public ones, the public list.
    public : mapping of str to PublicCategories
        Lists that the bounds give. Their columns refuse any other category. In other columns a new category gets the
        number after the last, which no split sends left.
    kinds : mapping of str to str
        By column without categories that has any cells, their kind: ``numbers``, ``dates`` or ``durations``. Cells of
        another kind are refused.
    labels : Index, optional
        Column labels of the training table, if they are no texts. Tables with other labels are refused.
    """

    categories: Mapping[str, tuple[str, ...]]
    public: Mapping[str, PublicCategories]
    kinds: Mapping[str, str] = field(default_factory=dict)
    labels: pd.Index | None = field(default=None, compare=False)

    @classmethod
    def learn(
        cls,
        frame: pd.DataFrame | None,
        bounds: object,
        known: Mapping[str, Sequence[str]],
        *,
        kinds: Mapping[str, str] | None = None,
    ) -> FrameEncoder:
        """Learn the categories and kinds of a training table; an array has none.

        Categories that are `known` from an earlier training come first.

        Raises
        ------
        ParameterError
            If the bounds list categories and the table is not a data frame.
        """
        column_bounds = dict(bounds) if isinstance(bounds, Mapping) else {}
        if frame is None and any(map(PublicCategories.of, column_bounds.values())):
            raise ParameterError("`bounds` list categories, which need a data frame. Nothing was released")
        columns = {} if frame is None else dict(_columns_of(frame))
        labels = labels_of(frame)
        names = ColumnPositions(tuple(columns), are_positions(labels))
        by_name = {} if frame is None else {names.name_of(column): pair for column, pair in column_bounds.items()}
        lists = {name: _public_list(columns[name], pair) for name, pair in by_name.items()}
        public = {name: listed for name, listed in lists.items() if listed is not None}
        categories = {name: listed.names for name, listed in public.items()}
        for name, column in columns.items():
            earlier = tuple(known.get(name, ()))
            if name not in categories and (earlier or _is_text(column)):
                categories[name] = tuple(dict.fromkeys([*earlier, *_categories_of(column)]))
        others = columns.keys() - categories.keys()
        found_kinds = {name: kind_of(columns[name]) for name in others if columns[name].notna().any()}
        return cls(categories, public, found_kinds | dict(kinds or {}), labels)

    def decode(self, X: Values, names: Sequence[str]) -> pd.DataFrame:
        """Rows as the passive party holds them: columns by name, with categories that are public as texts.

        Raises
        ------
        DataError
            If an array's cell is no position in the list of a column with public categories.
        """
        table = pd.DataFrame(X, columns=list(names))
        for name, listed in self.public.items():
            n_bad = int((table[name].notna() & ~table[name].isin(range(len(listed.names)))).sum())
            if n_bad:
                raise DataError(
                    f"column {name!r} holds categories, in an array their positions 0 to {len(listed.names) - 1}; "
                    f"{n_bad} cells are none. Nothing was released"
                )
            codes = table[name].fillna(-1).to_numpy(np.int64)
            table[name] = pd.Categorical.from_codes(codes, pd.Index(listed.names))
        return table

    def in_numbers(self, table: Any) -> Any:
        """A table in numbers: a data frame as `encode` makes it; arrays and lists as they are.

        Raises
        ------
        DataError
            As `encode`; and for dates and durations in an array, whose columns have no kinds.
        """
        frame = as_frame(table)
        if frame is None and (times := with_times(table)):
            raise DataError(
                f"these columns of an array hold dates or durations: {', '.join(times)}. Pass a data frame, where they "
                "count days, or numbers. Nothing was released"
            )
        return table if frame is None else self.encode(frame)

    def encode(self, frame: pd.DataFrame) -> pd.DataFrame:
        """A data frame of float64 under the same names.

        Raises
        ------
        DataError
            If a cell is not among its column's public categories, or not a number in a column of numbers; if a column
            is of another kind than in training; if several columns have one name; or if column labels that are no
            texts differ from those in training.
        """
        check_labels(frame, self.labels)
        numbers = (self._numbers(name, column) for name, column in _columns_of(frame))
        return pd.DataFrame(dict(enumerate(numbers)), frame.index).set_axis(frame.columns, axis=1)

    def _numbers(self, name: str, column: pd.Series) -> Any:
        if name in self.categories:
            texts = category_texts(column, self.categories[name])
            positions = {category: float(i) for i, category in enumerate(self.categories[name])}
            numbers = texts.map(positions).to_numpy(dtype=np.float64, na_value=np.nan)
            is_new = np.isnan(numbers) & texts.notna().to_numpy()
            if is_new.any() and name in self.public:
                raise DataError(
                    f"column {name!r} has {int(is_new.sum())} cells whose category is not among the {len(positions)} "
                    "public ones. Nothing was released"
                )
            return np.where(is_new, float(len(positions)), numbers)
        kind = kind_of(column)
        if kind == "periods":
            raise DataError(
                f"column {name!r} holds periods, which count in the unit of their frequency; give dates, as "
                "`dt.to_timestamp()` makes of them. Nothing was released"
            )
        if kind != (trained := self.kinds.get(name, kind)) and column.notna().any():
            found = "texts" if _is_text(column) else kind
            raise DataError(
                f"column {name!r} held {trained} in the table that was trained on, and holds {found} here; give "
                f"{trained}. Nothing was released"
            )
        if kind != "numbers":
            return days_of(column)
        try:
            cells = pd.to_numeric(column)
            if np.iscomplexobj(cells):
                raise TypeError
            return cells.to_numpy(dtype=np.float64, na_value=np.nan)
        except (OverflowError, TypeError, ValueError):
            raise DataError(f"column {name!r} holds cells that are not numbers. Nothing was released") from None


def as_frame(table: Any) -> pd.DataFrame | None:
    """A table as pandas' data frame, if it is one of pandas, polars or Arrow; None for arrays and lists."""
    if isinstance(table, pd.DataFrame):
        return table
    if not hasattr(table, "__arrow_c_stream__"):
        return None
    import pyarrow

    try:
        return pyarrow.table(table).to_pandas()
    except (TypeError, ValueError):
        # A single column.
        return None


def refuse_all_but_numbers(table: Any) -> None:
    """Refuse tables with texts, categories, dates or durations; errors name columns, never cells.

    Libraries convert dates to numbers in whatever unit they are stored, for which public bounds are not meant.

    Raises
    ------
    DataError
    """
    frame = as_frame(table)
    columns = [] if frame is None else _columns_of(frame)
    if texts := [name for name, column in columns if _is_text(column)]:
        raise DataError(
            f"these columns hold texts or categories, and numbers are needed: {', '.join(texts)}. Give their positions "
            "0 to K - 1 in a public list of K, name the columns as `categorical_features` where the estimator has it, "
            "and let their bounds be (0, K - 1). Nothing was released"
        )
    if times := with_times(table if frame is None else frame):
        raise DataError(
            f"these columns hold dates or durations, and numbers are needed: {', '.join(times)}. "
            "Give days since a date that is public, or the like. Nothing was released"
        )


def with_times(table: Any) -> list[str]:
    """Columns of a table, or of labels, with dates, durations or periods."""
    frame = as_frame(table)
    columns = _columns_of_array(table) if frame is None else _columns_of(frame)
    return [name for name, cells in columns if has_times(cells)]


def _columns_of_array(table: Any) -> list[tuple[str, NDArray[Any]]]:
    """Numbered columns of an array or of lists; none of uneven lists, which scikit-learn refuses."""
    try:
        columns = np.atleast_2d(np.asarray(table).T)
    except ValueError:
        return []
    return list(zip(numbered(len(columns)), columns, strict=True))


def _columns_of(frame: pd.DataFrame) -> list[tuple[str, pd.Series]]:
    """Columns with the names that scikit-learn makes of them: numbered ones where no name is a text."""
    if not frame.columns.is_unique:
        repeated = dict.fromkeys(map(str, frame.columns[frame.columns.duplicated()]))
        raise DataError(f"several columns are named {', '.join(repeated)}; rename them. Nothing was released")
    has_texts = any(isinstance(name, str) for name in frame.columns)
    names = map(str, frame.columns) if has_texts else numbered(frame.shape[1])
    return [(name, _of_pandas(frame.iloc[:, place])) for place, name in enumerate(names)]


def _of_pandas(column: pd.Series) -> pd.Series:
    """A column in pandas' own types, where it has one of Arrow's."""
    return column.array.__arrow_array__().to_pandas() if isinstance(column.dtype, pd.ArrowDtype) else column


def _categories_of(column: pd.Series) -> tuple[str, ...]:
    """Categories as `encode` reads them from cells."""
    if not isinstance(column.dtype, pd.CategoricalDtype):
        cells = column.dropna()
        return tuple(sorted(set(category_texts(cells, [cell for cell in cells if isinstance(cell, str)]))))
    return _names(column.dtype)


def _names(kind: pd.CategoricalDtype) -> tuple[str, ...]:
    """The categories of a type of pandas', in their order."""
    cells = pd.Series(pd.Categorical(kind.categories, dtype=kind))
    return tuple(dict.fromkeys(category_texts(cells, [one for one in kind.categories if isinstance(one, str)])))


def _public_list(column: pd.Series, bounds: Any) -> PublicCategories | None:
    """The public categories of a column with bounds: those listed, or both of truth values, which have no distance."""
    if kind_of(column) in ("dates", "periods"):
        return None
    if pd.api.types.infer_dtype(column, skipna=True) == "boolean" and not PublicCategories.of(bounds):
        return PublicCategories(_TRUTH_VALUES, Kind.UNORDERED)
    return PublicCategories.of(bounds)


def _is_text(column: pd.Series) -> bool:
    if isinstance(column.dtype, pd.CategoricalDtype | pd.StringDtype):
        return True
    if column.dtype != object or kind_of(column) != "numbers":
        return False
    try:
        numbers = pd.to_numeric(column, errors="coerce")
    except OverflowError:
        return False
    return bool(numbers.isna().to_numpy()[column.notna().to_numpy()].any())
