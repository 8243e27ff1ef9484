"""The exponential mechanism: private selection of one candidate with a high utility.

``Pr[r]`` is proportional to ``measure(r) * exp(epsilon * u(r) / R)`` for a measure that no data enter and the *range* R
of the utility: the largest, over neighbouring data sets D and D', of ``max_r v(r) - min_r v(r)``, where v(r) is the
change ``u(r; D') - u(r; D)``. R is at most twice the sensitivity of u (McSherry and Talwar, FOCS 2007), and often less.

Utilities are doubles that carry rounding error; they are rounded to multiples of ``R / 2**20`` and the rounding is paid
for, so that weights are exact functions of integers. Which candidate a uniform number falls on is decided in doubles,
and in decimals where doubles could be wrong. So the ratio of probabilities holds to the last digit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from opboost.errors import ParameterError, check_positive
from opboost.privacy.laws import check_epsilon
from opboost.privacy.settling import Boundary, LazyUniform, smallest_where
from opboost.rng import BitSource

# Utilities are rounded to this share of their range.
_STEPS_PER_RANGE = 2**20

# Rounding moves a utility by half a step, and the caller's arithmetic may have moved it by half a step before; a change
# between neighbours is off by up to two steps, and the range of changes by up to four.
_EXTRA_STEPS = 4

# Largest rounded utility: beyond it the multiplication that leads there would be off by a good part of a step.
_LARGEST_UTILITY = 2**46


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialMechanism:
    """Exponential mechanism, exact to the last bit.

    Parameters
    ----------
    epsilon : float
        Cost of one choice; infinite to take the best candidate.
    utility_range : float
        R above. For a utility that changes by at most `s`: ``2 * s``; by at most `s` in one direction for all
        candidates: ``s``. Terms of the utility that are the same for all candidates do not count and may be dropped.

    Notes
    -----
    Privacy: `epsilon`-DP, and `epsilon`-bounded range (`accounting` knows it as a `SelectionRelease`). The utilities
    given may be off their true values by ``0.49 * utility_range / 2**20``.
    """

    epsilon: float
    utility_range: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        check_positive("a utility's range", self.utility_range)

    @property
    def rate(self) -> float:
        """Exponent per step of the rounded utility; the double is taken as exact and is never above its true value."""
        return math.nextafter(self.epsilon / (_STEPS_PER_RANGE + _EXTRA_STEPS), 0.0)

    def rounded(self, utilities: NDArray[np.float64]) -> NDArray[np.int64]:
        """Utilities in whole steps of ``utility_range / 2**20``."""
        steps = np.rint(np.asarray(utilities, dtype=np.float64) * (_STEPS_PER_RANGE / self.utility_range))
        if not (np.abs(steps) <= _LARGEST_UTILITY).all():
            raise ParameterError(
                f"utilities must be numbers below {_LARGEST_UTILITY / _STEPS_PER_RANGE:g} times their range in size. "
                "Nothing was drawn"
            )
        return steps.astype(np.int64)

    def log_probabilities(
        self, utilities: NDArray[np.float64], measure: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Exact log-probabilities of a choice, shape of `utilities`; candidates of measure zero have ``-inf``."""
        rounded = self.rounded(utilities)
        measure = np.ones(rounded.shape) if measure is None else _check_measure(measure, rounded.shape)
        if math.isinf(self.epsilon):
            best = np.where(measure > 0, rounded, np.iinfo(np.int64).min)
            measure = np.where(best == best.max(axis=-1, keepdims=True), measure, 0.0)
            rounded = np.zeros_like(rounded)
        logits = self._logits(rounded, measure)
        return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))

    def choose(
        self, utilities: NDArray[np.float64], measure: NDArray[np.float64] | None = None, *, rng: BitSource
    ) -> NDArray[np.int64]:
        """Choose one candidate per row.

        Parameters
        ----------
        utilities : ndarray of float64, shape (n_choices, n_candidates)
        measure : ndarray of float64, shape (n_choices, n_candidates) or (n_candidates,), optional
            Weights before any data are seen, not negative, a positive one in every row; the doubles are taken as exact.
            1 by default.
        rng : BitSource

        Returns
        -------
        ndarray of int64, shape (n_choices,)
        """
        rounded = self.rounded(utilities)
        if rounded.ndim != 2 or rounded.shape[1] == 0:
            raise ParameterError(f"utilities must have one row per choice and a candidate; got shape {rounded.shape}")
        measure = np.ones(rounded.shape) if measure is None else _check_measure(measure, rounded.shape)
        if math.isinf(self.epsilon):
            best = np.where(measure > 0, rounded, np.iinfo(np.int64).min)
            measure = np.where(best == best.max(axis=1, keepdims=True), measure, 0.0)
            rounded = np.zeros_like(rounded)
        words = rng.words(len(rounded))
        cumulative = np.cumsum(np.exp(self._logits(rounded, measure)), axis=1)
        total = cumulative[:, -1:]
        uniform = (words.astype(np.float64) * 2.0**-64)[:, None]
        # A weight is off by some 1e-13 of itself at most, a sum of weights by an ulp per term.
        slack = (1e-12 + 1e-15 * rounded.shape[1]) * total
        gap = cumulative - uniform * total
        chosen = np.argmax(gap > 0, axis=1)
        ambiguous = (np.abs(gap[:, :-1]) <= slack).any(axis=1) | (gap[:, -1] <= slack[:, 0])
        for i in np.flatnonzero(ambiguous):
            chosen[i] = self._settle(rounded[i], measure[i], LazyUniform(int(words[i]), 64, rng=rng))
        return chosen.astype(np.int64)

    def _logits(self, rounded: NDArray[np.int64], measure: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logs of the weights, in every row relative to the largest one (of a positive measure)."""
        with np.errstate(divide="ignore"):
            log_measure = np.log(measure)
        rate = 0.0 if math.isinf(self.epsilon) else self.rate
        reference = np.argmax(rate * (rounded - rounded.max(axis=-1, keepdims=True)) + log_measure, axis=-1)[..., None]
        steps = rounded - np.take_along_axis(rounded, reference, axis=-1)
        return rate * steps + (log_measure - np.take_along_axis(log_measure, reference, axis=-1))

    def _settle(self, rounded: NDArray[np.int64], measure: NDArray[np.float64], uniform: LazyUniform) -> int:
        """The first candidate up to which the weights' share exceeds the uniform number."""
        candidates = np.flatnonzero(measure)
        steps = [int(step) for step in rounded[candidates] - rounded[candidates].max()]
        masses = [Decimal(float(mass)) for mass in measure[candidates]]
        rate = Decimal(0 if math.isinf(self.epsilon) else self.rate)

        @cache
        def cumulative(n_digits: int) -> list[Decimal]:
            context = Context(prec=n_digits, Emax=MAX_EMAX, Emin=MIN_EMIN)
            weights = (
                context.multiply(mass, context.exp(context.multiply(rate, Decimal(step))))
                for mass, step in zip(masses, steps, strict=True)
            )
            return list(accumulate(weights, context.add))

        def share_up_to(place: int) -> Boundary:
            return lambda context: context.divide(cumulative(context.prec)[place], cumulative(context.prec)[-1])

        chosen = smallest_where(lambda place: uniform.is_below(share_up_to(place)), 0, len(candidates) - 1)
        return int(candidates[chosen])


def _check_measure(measure: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    measure = np.broadcast_to(np.asarray(measure, dtype=np.float64), shape)
    if not (np.isfinite(measure).all() and (measure >= 0).all() and (measure > 0).any(axis=-1).all()):
        raise ParameterError(
            "a base measure must be finite and not negative, with a candidate of positive measure. Nothing was drawn"
        )
    return measure
