"""Fits that are whole or not at all: one that breaks off leaves its estimator as it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from opboost.arrays import python_numbers

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=Any)


def whole(fit: Callable[Concatenate[E, P], R]) -> Callable[Concatenate[E, P], R]:
    """Make a method that gives its object back its attributes where it raises, and counts in numbers of Python.

    A guarantee must not be read beside a model that another fit has made. NumPy's numbers, such as grids of parameters
    have, are of a type of their own: messages do not take them, and small ones overflow.
    """

    @wraps(fit)
    def done_or_undone(estimator: E, /, *arguments: P.args, **options: P.kwargs) -> R:
        before = vars(estimator).copy()
        given = {name: before[name] for name in estimator.get_params(deep=False)}
        vars(estimator).update(python_numbers(given))
        try:
            result = fit(estimator, *arguments, **options)
        except BaseException:
            estimator.__dict__ = before
            raise
        vars(estimator).update(given)
        return result

    return done_or_undone
