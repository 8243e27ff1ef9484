"""Fits that are whole or not at all: one that breaks off leaves its estimator as it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=Any)


def whole(fit: Callable[Concatenate[E, P], R]) -> Callable[Concatenate[E, P], R]:
    """Make a method that gives its object back its attributes where it raises.

    A guarantee must not be read beside a model that another fit has made.
    """

    @wraps(fit)
    def done_or_undone(estimator: E, /, *arguments: P.args, **options: P.kwargs) -> R:
        before = vars(estimator).copy()
        try:
            return fit(estimator, *arguments, **options)
        except BaseException:
            estimator.__dict__ = before
            raise

    return done_or_undone
