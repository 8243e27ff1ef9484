"""Public schema of a table: what is known about each column without looking at the data."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Any

from opboost.errors import SchemaError, nearest, shown
from opboost.table_format import TableFormat

# Between whole bounds at least so far apart, values are taken to differ by whole units.
WHOLE_RANGE = 10.0


# How far apart the bounds of a number may be: beyond, doubles have no steps between them, or no width.
NARROWEST, WIDEST = 1e-290, 1e300


class Kind(StrEnum):
    """What a column's values are."""

    NUMERIC = "numeric"
    ORDERED = "ordered"
    UNORDERED = "unordered"


class Missing(StrEnum):
    """What an empty cell means."""

    REFUSE = "refuse"
    CATEGORY = "category"
    IMPUTE = "impute"


class Outside(StrEnum):
    """What to do with a number outside the public bounds."""

    CLIP = "clip"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSchema:
    """Public schema of one column.

    Parameters
    ----------
    name : str
    kind : Kind
        ``numeric``; ``ordered`` categories, whose order is that of `categories`; or ``unordered`` categories.
    lower, upper : float, optional
        Public bounds of a numeric column, in its own unit. Taken from data they would leak the extremes.
    step : float, optional
        Smallest difference that counts between two values of a numeric column, in its own unit: 1 for whole numbers.
        Promises are stated for values one step apart.
    categories : tuple of str, optional
        Public list of the categories of an ``ordered`` or ``unordered`` column.
    missing : Missing
        ``refuse``: an empty cell is an error. ``category``: missingness is a state of its own.
        ``impute``: an empty cell is read as `fill`, a public constant.
    fill : float or str, optional
        The constant for ``missing="impute"``.
    outside : Outside
        ``clip`` numbers to the bounds and count them, or ``refuse`` the table.

    Raises
    ------
    SchemaError
        If bounds or categories are absent, empty, repeated or contradictory.
    """

    name: str
    kind: Kind = Kind.NUMERIC
    lower: float | None = None
    upper: float | None = None
    step: float | None = None
    categories: tuple[str, ...] = ()
    missing: Missing = Missing.REFUSE
    fill: float | str | None = None
    outside: Outside = Outside.CLIP

    def __post_init__(self) -> None:
        for key, choices in (("kind", Kind), ("missing", Missing), ("outside", Outside)):
            try:
                object.__setattr__(self, key, choices(getattr(self, key)))
            except ValueError:
                known = ", ".join(choices)
                raise SchemaError(
                    f"column {self.name!r}: {key} is {shown(getattr(self, key))}; allowed are {known}"
                    f"{nearest(str(getattr(self, key)), choices)}"
                ) from None
        if self.kind is Kind.NUMERIC:
            self._check_bounds()
        else:
            self._check_categories()
        if (self.missing is Missing.IMPUTE) != (self.fill is not None):
            raise SchemaError(
                f"column {self.name!r}: `missing: impute` and a public constant `fill` go together; "
                f"found missing={self.missing.value!r} {'without' if self.fill is None else 'with'} fill"
            )

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest value; positions in the list for a categorical column."""
        if self.kind is Kind.NUMERIC:
            assert self.lower is not None
            assert self.upper is not None
            return float(self.lower), float(self.upper)
        return 0.0, float(len(self.categories) - 1)

    @property
    def own_step(self) -> float | None:
        """The difference between neighbouring values in the column's own unit, where it is known.

        One category of ordered ones; of numbers `step`, or one unit if both bounds are whole and at least
        `WHOLE_RANGE` apart. None for other numbers, and for unordered categories.
        """
        lower, upper = self.bounds
        if self.kind is not Kind.NUMERIC:
            return 1.0 if self.kind is Kind.ORDERED else None
        if self.step is not None:
            return float(self.step)
        is_whole = lower.is_integer() and upper.is_integer() and upper - lower >= WHOLE_RANGE
        return 1.0 if is_whole else None

    @property
    def fill_value(self) -> float:
        """The imputed constant as a number (its position in the list for a categorical column)."""
        if self.kind is Kind.NUMERIC:
            assert isinstance(self.fill, (int, float))
            return float(self.fill)
        return float(self.categories.index(str(self.fill)))

    def _check_bounds(self) -> None:
        if self.lower is None or self.upper is None:
            raise SchemaError(
                f"column {self.name!r} is numeric and needs public bounds `lower` and `upper`; bounds taken from the "
                "data would reveal its extremes, so nothing is read from it"
            )
        # The negation refuses bounds that are no numbers, too.
        most = sys.float_info.max
        is_finite = -most <= self.lower < self.upper <= most
        if not (is_finite and NARROWEST <= self.upper - self.lower <= WIDEST):
            raise SchemaError(
                f"column {self.name!r}: bounds must be finite with lower < upper, {NARROWEST:g} to {WIDEST:g} apart; "
                f"found lower={shown(self.lower)}, upper={shown(self.upper)}"
            )
        if self.step is not None and not 0 < self.step <= self.upper - self.lower:
            raise SchemaError(
                f"column {self.name!r}: step must lie in (0, {self.upper - self.lower:g}]; found {shown(self.step)}"
            )
        if self.categories:
            raise SchemaError(f"column {self.name!r} is numeric and cannot have categories")
        if self.fill is not None and (
            isinstance(self.fill, bool)
            or not isinstance(self.fill, (int, float))
            or not self.lower <= self.fill <= self.upper
        ):
            raise SchemaError(
                f"column {self.name!r}: fill must be a number within [{self.lower}, {self.upper}]; "
                f"found {shown(self.fill)}"
            )

    def _check_categories(self) -> None:
        if self.lower is not None or self.upper is not None or self.step is not None:
            raise SchemaError(f"column {self.name!r} is categorical and cannot have bounds or a step")
        if len(self.categories) < 2 or len(set(self.categories)) != len(self.categories):
            raise SchemaError(
                f"column {self.name!r} is {self.kind.value} and needs a public list of at least two distinct "
                f"`categories`; found {len(self.categories)}, {len(set(self.categories))} of them distinct"
            )
        if self.fill is not None and str(self.fill) not in self.categories:
            near = nearest(str(self.fill), self.categories)
            raise SchemaError(f"column {self.name!r}: fill {shown(self.fill)} is not one of its categories{near}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """Public schema of one party's table.

    Parameters
    ----------
    columns : tuple of ColumnSchema
    id : str or tuple of str
        Name of the record key, or names of the columns that make it together.
    label : str, optional
        Name of the label column; only the active party has one.
    more_labels : tuple of str
        Further label columns, each of which gets trees of its own.
    weight : str, optional
        Column of records' weights in training.
    group : str, optional
        Column of the groups in which records are ranked, for objectives that rank.
    base_margin : tuple of str
        Columns where records' scores start, one per output.
    format : TableFormat
        How the cells of the table's file are written.
    """

    columns: tuple[ColumnSchema, ...]
    id: str | tuple[str, ...] = "id"
    label: str | None = None
    more_labels: tuple[str, ...] = ()
    weight: str | None = None
    group: str | None = None
    base_margin: tuple[str, ...] = ()
    format: TableFormat = field(default=TableFormat(), compare=False)

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise SchemaError(f"columns named more than once in the schema: {', '.join(repeated)}")
        if not self.id_columns or len(set(self.id_columns)) < len(self.id_columns):
            raise SchemaError(f"the id needs at least one column, and none twice; found {', '.join(self.id_columns)}")
        for role, name in (*(("id", name) for name in self.id_columns), *self.of_training):
            if name in names:
                raise SchemaError(f"column {name!r} cannot be both the {role} and a feature")
        given = [name for _, name in self.of_training]
        for role, name in self.of_training:
            if name in self.id_columns or given.count(name) > 1:
                other = "the id" if name in self.id_columns else "another of them"
                raise SchemaError(f"column {name!r} cannot be both {other} and the {role}")
        if self.label is None and given:
            raise SchemaError(f"{', '.join(given)}: the schema names no `label`, with which weights and margins go")
        if self.group is not None and self.more_labels:
            raise SchemaError(f"records are ranked in groups ({self.group}) by one label; found {len(self.labels)}")

    @property
    def unordered(self) -> tuple[int, ...]:
        """Places of the columns of unordered categories."""
        return tuple(place for place, column in enumerate(self.columns) if column.kind is Kind.UNORDERED)

    @property
    def id_columns(self) -> tuple[str, ...]:
        """Names of the columns that make the record key."""
        return (self.id,) if isinstance(self.id, str) else self.id

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of all label columns."""
        return () if self.label is None else (self.label, *self.more_labels)

    @property
    def of_training(self) -> tuple[tuple[str, str], ...]:
        """The columns that are neither id nor feature: what each is, and its name."""
        single = (("weight", self.weight), ("group", self.group))
        return (
            *(("label", name) for name in self.labels),
            *((what, name) for what, name in single if name is not None),
            *(("base margin", name) for name in self.base_margin),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the feature columns, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def all_names(self) -> frozenset[str]:
        """Names of all columns: the record key's, features, and those of training."""
        return frozenset((*self.id_columns, *self.names, *(name for _, name in self.of_training)))


def column_from_mapping(name: str, description: Mapping[str, Any]) -> ColumnSchema:
    """Read one column's description, as found in a schema file.

    Raises
    ------
    SchemaError
        If a key is unknown or a value is not allowed.
    """
    allowed = {"kind", "lower", "upper", "step", "categories", "missing", "fill", "outside"}
    unknown = sorted(map(str, set(description) - allowed))
    if unknown:
        raise SchemaError(
            f"column {name!r}: unknown keys {', '.join(unknown)}; allowed are {', '.join(sorted(allowed))}"
            f"{nearest(unknown, allowed)}"
        )
    settings: dict[str, Any] = dict(description)
    for key in ("lower", "upper", "step"):
        if key in settings and (isinstance(settings[key], bool) or not isinstance(settings[key], (int, float))):
            raise SchemaError(f"column {name!r}: {key} must be a number; found {shown(settings[key])}")
    categories = settings.get("categories", ())
    if not isinstance(categories, (list, tuple)):
        raise SchemaError(f"column {name!r}: categories must be a list; found {type(categories).__name__}")
    for category in categories:
        if isinstance(category, bool) or not isinstance(category, (str, int, float, date)):
            raise SchemaError(
                f"column {name!r}: a category reads as {shown(category)}; put words like yes, no and null in quotes"
            )
    settings["categories"] = tuple(str(category) for category in categories)
    return ColumnSchema(name=name, **settings)
