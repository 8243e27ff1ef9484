"""Public schemas and mechanisms of the passive party's columns, from an estimator's parameters."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opboost.arrays import Values
from opboost.column_positions import ColumnKey, ColumnPositions
from opboost.desensitize import ColumnMechanism
from opboost.errors import SchemaError
from opboost.mechanism_settings import MechanismSettings, stated_budget
from opboost.schema import ColumnSchema, Missing
from opboost.sklearn.data_frames import FrameEncoder
from opboost.sklearn.days import bounds_in_days

# More values than this outside of bounds say that these are wrong.
_MOST_CLIPPED = 0.01


def passive_schemas(
    positions: ColumnPositions,
    bounds: Any,
    passive_columns: Sequence[ColumnKey] | None,
    encoder: FrameEncoder,
    *,
    missing: Missing,
) -> list[ColumnSchema]:
    """Public schemas of the passive columns, in the order of the columns.

    Parameters
    ----------
    positions : ColumnPositions
    bounds : mapping of column to bounds or categories, or pair of numbers or arrays
    passive_columns : sequence of column, optional
        By default those that `bounds` names.
    encoder : FrameEncoder
    missing : Missing

    Raises
    ------
    SchemaError
        If a passive column has no public bounds, or holds texts without a public list.
    """
    if isinstance(bounds, Mapping):
        named = {positions.name_of(column): pair for column, pair in bounds.items()}
        bounds = {name: bounds_in_days(pair) for name, pair in named.items() if name not in encoder.public}
    else:
        bounds = bounds_in_days(bounds)
    numbers = {positions.names[i]: pair for i, pair in positions.bounds(bounds).items()}
    passive = positions.named("passive_columns", passive_columns)
    if passive_columns is None:
        passive = {*numbers, *encoder.public}
    if unbounded := sorted(passive - numbers.keys() - encoder.public.keys()):
        raise SchemaError(
            f"passive columns need public bounds, and these have none: {', '.join(unbounded)}. Give them as `bounds`; "
            "taken from the data they would reveal its extremes. Nothing was released"
        )
    if texts := sorted((passive & encoder.categories.keys()) - encoder.public.keys()):
        raise SchemaError(
            f"passive columns of texts need a public list of their categories as `bounds`: {', '.join(texts)}. "
            "Nothing was released"
        )
    schemas = []
    for name in sorted(passive, key=positions.names.index):
        if name in encoder.public:
            listed = encoder.public[name]
            schemas.append(ColumnSchema(name=name, kind=listed.kind, categories=listed.names, missing=missing))
        else:
            lower, upper = numbers[name]
            schemas.append(ColumnSchema(name=name, lower=lower, upper=upper, missing=missing))
    return schemas


def warn_of_clipped(schemas: Sequence[ColumnSchema], columns: Mapping[str, Values]) -> None:
    """Warn where more than one value of a hundred lies outside the public bounds, and counts as the nearest one."""
    for schema in schemas:
        lower, upper = schema.bounds
        n_outside = int(np.sum((columns[schema.name] < lower) | (columns[schema.name] > upper)))
        if n_outside > _MOST_CLIPPED * len(columns[schema.name]):
            warnings.warn(
                f"{n_outside} of {len(columns[schema.name])} values of column {schema.name!r} lie outside its bounds, "
                f"{lower:g} to {upper:g}, and count as the nearest one",
                stacklevel=3,
            )


def passive_mechanisms(
    schemas: Sequence[ColumnSchema], common: Mapping[str, Any], own: Mapping[str, Mapping[str, Any]], **settings: Any
) -> tuple[ColumnMechanism, ...]:
    """A mechanism for every passive column, with its `own` budget or else the `common` one.

    Raises
    ------
    SchemaError
        If a budget is for a column that is not passive.
    """
    if others := sorted(own.keys() - {schema.name for schema in schemas}):
        raise SchemaError(f"budgets names columns that are not passive: {', '.join(others)}. Nothing was released")
    mechanisms = []
    for schema in schemas:
        stated = stated_budget(**own.get(schema.name, common))
        points = MechanismSettings(**{"domain_size": stated.points, **settings})
        mechanisms.append(
            ColumnMechanism(schema, stated.resolve(schema, points, own_points=False, is_own=schema.name in own))
        )
    return tuple(mechanisms)
