"""Total variation distance of Skellam to Gaussian noise, which gives Skellam noise an exact accounting.

Lemma. For ``2**16 <= V <= 2**62`` the total variation distance between Skellam noise of variance V and normal noise of
variance V rounded to integers is at most ``1 / V``.

Proof. The two probabilities of an integer k are ``integral of f(t) exp(-i t k) / (2 pi)``, where f is
``A(t) = exp(-V (1 - cos t))`` on ``|t| <= pi`` for the first and ``B(t) = exp(-V t^2 / 2) sin(t / 2) / (t / 2)`` on all
t for the second. Where ``|t| <= 0.1``, ``1 - cos t`` lies between ``0.4995 t^2`` and ``t^2 / 2``, and below the latter
by at most ``t^4 / 24``, so that ``0 <= A - exp(-V t^2 / 2) <= exp(-0.4995 V t^2) V t^4 / 24``. Further
``0 <= exp(-V t^2 / 2) - B <= exp(-V t^2 / 2) t^2 / 24``. Integrated, these are at most ``0.315 V^-1.5`` and
``0.105 V^-1.5``. Beyond 0.1, A is at most ``exp(-2 V t^2 / pi^2)`` and all of it below ``1e-50``. So the probabilities
of an integer differ by at most ``0.067 V^-1.5``, and those of all ``|k| <= 12 sqrt(V)`` together, halved, by less than
``0.81 / V``. Farther out lies less than ``1e-30`` of either (Chernoff's bound). QED

Consequence. Take two data sets that differ by one record, and let the noise be Gaussian in just those coordinates of
every answer that the record touches. The others are drawn alike from both data sets. What is released then is
``(epsilon, delta)``-DP by the exact Gaussian account, and nothing that anybody sees has become more or less likely by
more than the sum D of ``1 / V`` over releases and coordinates. With Skellam noise everywhere it is therefore
``(epsilon, delta + (1 + exp(epsilon)) D)``-DP.
"""

from __future__ import annotations

_LEAST_VARIANCE, _LARGEST_VARIANCE = 2.0**16, 2.0**62


def distance_to_gaussian(variance: float) -> float:
    """A bound on the total variation distance to rounded Gaussian noise of the same variance, in squared steps.

    It is 1, which says nothing, where the lemma is silent.
    """
    return 1.0 / variance if _LEAST_VARIANCE <= variance <= _LARGEST_VARIANCE else 1.0
