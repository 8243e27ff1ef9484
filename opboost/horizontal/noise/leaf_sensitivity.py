"""Sensitivity of leaf sums: bounds on a record's gradient and hessian, and how far one record moves a leaf."""

from __future__ import annotations

import math

import numpy as np

from opboost.horizontal.rows.record_holder import Clipping

# Steps of leaf values under static noise.
VALUE_STEPS = 2.0**24


def static_sensitivity(clipping: Clipping, reg_lambda: float) -> float:
    """How far one record moves a leaf's value ``-S / (n + reg_lambda)`` that is rounded to `VALUE_STEPS`."""
    return clipping.max_grad / (1 + reg_lambda) + 1 / VALUE_STEPS


def joint_norm(max_grad: float, max_hess: float, ratio: float, *, is_logistic: bool) -> float:
    """The largest ``sqrt(g^2 + (h / ratio)^2)`` of a clipped record.

    For the cross-entropy g and h are not large together: ``|g| = q`` leaves ``h = q (1 - q)``, so that at ``max_grad``
    = 1 and a ratio of 1 the Hessians add nothing to the sensitivity.
    """
    if not is_logistic:
        return math.hypot(max_grad, max_hess / ratio)
    q = np.linspace(0.0, 1.0, 4001)
    hess = np.minimum(q * (1 - q) + 1e-4, max_hess)
    return float(np.sqrt(np.minimum(q, max_grad) ** 2 + (hess / ratio) ** 2).max())


def leaf_clipping(
    max_grad: float, denominator_noise: float, *, is_classification: bool, counts: bool = False
) -> Clipping:
    """Bounds on the records' g and h, for a task whose labels are classes or numbers in [-1, 1].

    Parameters
    ----------
    max_grad : float
    denominator_noise : float
        Deviation of the noise on a leaf's counts or Hessians over that of the gradients, in units of their bounds'
        ratio.
    is_classification : bool
    counts : bool
        Whether h is 1 for classes too.
    """
    max_hess = 0.25 if is_classification and not counts else 1.0
    ratio = denominator_noise / (1.0 if is_classification else max_grad)
    norm = joint_norm(max_grad, max_hess, ratio, is_logistic=is_classification and not counts)
    return Clipping(max_grad=max_grad, max_hess=max_hess, ratio=ratio, max_norm=norm)
