"""Fits that are whole or not at all: one that breaks off leaves its estimator as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, wraps
from inspect import signature
from numbers import Real
from typing import Any, Concatenate, ParamSpec, TypeVar

from opboost.arrays import python_numbers
from opboost.errors import OpBoostError, ParameterError, shown

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=Any)


def whole(fit: Callable[Concatenate[E, P], R]) -> Callable[Concatenate[E, P], R]:
    """Make a method that gives its object back its attributes where it raises, and counts in numbers of Python.

    What fails for a parameter that should be a number and is none is told by its name. A guarantee must not be read
    beside a model that another fit has made. NumPy's numbers, such as grids of parameters have, are of a type of their
    own: messages do not take them, and small ones overflow.
    """

    @wraps(fit)
    def done_or_undone(estimator: E, /, *arguments: P.args, **options: P.kwargs) -> R:
        before = vars(estimator).copy()
        given = {name: before[name] for name in estimator.get_params(deep=False)}
        vars(estimator).update(python_numbers(given))
        try:
            result = fit(estimator, *arguments, **options)
        except BaseException as error:
            estimator.__dict__ = before
            if isinstance(error, Exception) and not isinstance(error, OpBoostError):
                _check_numbers(type(estimator), given)
            raise
        vars(estimator).update(given)
        return result

    return done_or_undone


def _check_numbers(kind: type, given: Mapping[str, object]) -> None:
    for name, may_be_none in _numbers_of(kind).items():
        value = given[name]
        if not (may_be_none if value is None else isinstance(value, Real) and _fits_a_float(value)):
            raise ParameterError(f"{name} must be a number{' or None' * may_be_none}; got {shown(value)}") from None


@cache
def _numbers_of(kind: type) -> dict[str, bool]:
    """The parameters of an estimator that are annotated as nothing but numbers, and whether each may be None."""
    found = {name: set(str(one.annotation).split(" | ")) for name, one in signature(kind).parameters.items()}
    return {name: "None" in kinds for name, kinds in found.items() if kinds <= {"int", "float", "None"}}


def _fits_a_float(value: Real) -> bool:
    try:
        float(value)
    except OverflowError:
        return False
    return True
