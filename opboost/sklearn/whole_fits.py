"""Calls of estimators: parameters by name, refused in the estimator's name, and fits that are whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, wraps
from inspect import Signature, signature
from numbers import Real
from typing import Any, Concatenate, ParamSpec, TypeVar, dataclass_transform

from opboost.arrays import python_numbers
from opboost.errors import OpBoostError, ParameterError, nearest, shown

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=Any)
K = TypeVar("K", bound=type[Any])


# What other systems call a parameter whose name here is not near.
_NAMES_ELSEWHERE = {"eta": "learning_rate", "iterations": "n_estimators", "num_boost_round": "n_estimators"}


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def with_parameters(kind: K) -> K:
    """Make a class of estimators, or a base of such, whose dataclass fields are its parameters.

    Calls with unknown parameters raise `TypeError` in the name of the estimator that was called.
    """
    dataclass(kw_only=True, eq=False, repr=False)(kind)
    initialise = kind.__init__
    accepted = signature(initialise)

    @wraps(initialise)
    def initialised(estimator: Any, /, *arguments: Any, **parameters: Any) -> None:
        _check_call(type(estimator).__name__, accepted, estimator, *arguments, **parameters)
        initialise(estimator, *arguments, **parameters)

    kind.__init__ = initialised
    return kind


def whole(fit: Callable[Concatenate[E, P], R]) -> Callable[Concatenate[E, P], R]:
    """Make a fit atomic: if it raises, the estimator has its former attributes again.

    Otherwise a guarantee could be read beside a model of another fit. During the fit, numbers of NumPy among the
    parameters are replaced by Python's: messages do not take NumPy's, and small ones overflow. If the fit fails because
    of a parameter that should be a number and is none, the error names it.
    """
    accepted = signature(fit)

    @wraps(fit)
    def all_or_nothing(estimator: E, /, *arguments: P.args, **options: P.kwargs) -> R:
        _check_call(f"{type(estimator).__name__}.{fit.__name__}", accepted, estimator, *arguments, **options)
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

    return all_or_nothing


def _check_call(name: str, accepted: Signature, /, *arguments: Any, **options: Any) -> None:
    """Refuse arguments that a function does not take, under the name by which it was called."""
    try:
        accepted.bind(*arguments, **options)
    except TypeError as error:
        known = [parameter for parameter in accepted.parameters if parameter != "self"]
        unknown = sorted(options.keys() - set(known))
        near = nearest([_NAMES_ELSEWHERE.get(option, option) for option in unknown], known)
        hint = near or f"; it takes {', '.join(known)}"
        raise TypeError(f"{name}() {error}, and nothing was trained{hint}") from None


def _check_numbers(kind: type, given: Mapping[str, object]) -> None:
    for name, may_be_none in _numbers_of(kind).items():
        value = given[name]
        if not (may_be_none if value is None else isinstance(value, Real) and _fits_a_float(value)):
            raise ParameterError(f"{name} must be a number{' or None' * may_be_none}; got {shown(value)}") from None


@cache
def _numbers_of(kind: type) -> dict[str, bool]:
    """The parameters of an estimator that are annotated as nothing but numbers, and whether each may be None."""
    parameters = signature(kind).parameters
    types = {name: set(str(parameter.annotation).split(" | ")) for name, parameter in parameters.items()}
    return {name: "None" in kinds for name, kinds in types.items() if kinds <= {"int", "float", "None"}}


def _fits_a_float(value: Real) -> bool:
    try:
        float(value)
    except OverflowError:
        return False
    return True
