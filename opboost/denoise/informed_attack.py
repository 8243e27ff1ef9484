"""Attribute inference by an attacker who knows a record's other values exactly, and the joint law of all columns.

Whoever holds a table can mount it before anything is released. The joint law is a mixture of latent classes, learned on
half of the records; the other half is attacked. As far as the mixture is right, it bounds what the release of the other
columns lets guess, and it stands for what an active party knows of a record besides.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.denoise.mixture import Floats, LatentClasses, Observed

# Records that the law is learned on, and as many that are attacked, at most; the fewest of both together.
LEARNED_ROWS, LEAST_ATTACKED = 2_000, 400

# States of a column in the mixture; the law of a column within a class is that of its own codes.
_CELLS = 24
# Records that the column's overall law counts for in every class: of 2, 10, 30 and 100, attacks on the bundled sample,
# Adult and Power Plant succeed best with 30 over all budgets.
_PRIOR_RECORDS = 30.0
_N_CLASSES, _ROWS_PER_CLASS, _N_STEPS = 30, 25, 15
# Points that are tried for every next cluster at the start.
_N_TRIED = 5

# One release of every record is looked at: a quantile of its row of the mechanism's table, another one for each.
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True, eq=False)
class JointLaw:
    """Joint law of columns as a mixture: probabilities of classes, by column, of records learned and attacked.

    Attributes
    ----------
    learned, attacked : tuple of ndarray of float32, shape (n_rows, n_classes)
    """

    learned: tuple[Floats, ...]
    attacked: tuple[Floats, ...]

    @classmethod
    def fit(cls, columns: Sequence[NDArray[np.int64]]) -> JointLaw:
        """Fit the joint law of columns of codes, of which -1 is a missing cell; even rows are learned from."""
        cells = np.column_stack([_cells(codes) for codes in columns])
        learned = _observed(cells[::2])
        channels = [np.eye(int(n) + 1) for n in cells.max(axis=0)]
        n_classes = max(2, min(_N_CLASSES, len(learned) // _ROWS_PER_CLASS))
        rng = np.random.default_rng(0)
        model = LatentClasses.fit(
            learned, channels, [], n_classes=n_classes, n_steps=_N_STEPS, cluster=_k_means, rng=rng
        )
        class_shares: tuple[list[Floats], list[Floats]] = ([], [])
        for c in range(len(columns)):
            others = np.arange(len(columns)) != c
            blind = replace(model, channels=_without(model.channels, c), laws=_without(model.laws, c))
            for part, rows in zip(class_shares, (cells[::2], cells[1::2]), strict=True):
                part.append(blind.classes(_observed(rows[:, others])))
        return cls(tuple(class_shares[0]), tuple(class_shares[1]))

    def beliefs(self, column: int, codes: NDArray[np.int64], n_codes: int) -> Beliefs:
        """Law of each attacked record's code, by its other columns; `codes` of all rows, of which -1 is missing."""
        (taught, attacked), (own, classes) = (codes[::2], codes[1::2]), (self.learned[column], self.attacked[column])
        is_known, is_attacked = taught >= 0, attacked >= 0
        counts = np.zeros((n_codes, own.shape[1]))
        order = np.argsort(taught[is_known], kind="stable")
        known_codes, starts = np.unique(taught[is_known][order], return_index=True)
        if len(known_codes):
            counts[known_codes] = np.add.reduceat(own[is_known][order], starts, axis=0, dtype=np.float64)
        overall = counts.sum(axis=1, keepdims=True)
        counts += _PRIOR_RECORDS * overall / max(1.0, overall.sum())
        laws = counts / np.maximum(counts.sum(axis=0), 1e-30)
        return Beliefs(attacked[is_attacked], classes[is_attacked] @ laws.T.astype(np.float32))


@dataclass(frozen=True, slots=True, eq=False)
class Beliefs:
    """Codes of records, and what an attacker believes of each before seeing its release.

    Attributes
    ----------
    codes : ndarray of int64, shape (n_rows,)
    laws : ndarray of float32, shape (n_rows, n_codes)
    """

    codes: NDArray[np.int64]
    laws: Floats

    @property
    def blind_success(self) -> float:
        """Share of the records whose code is the likeliest one."""
        return float((self.laws.argmax(axis=1) == self.codes).mean()) if len(self.codes) else 0.0

    def success(self, table: Values) -> float:
        """Share of codes guessed right given releases by a mechanism with these probabilities, shape ``(n, n)``."""
        if not len(self.codes):
            return 0.0
        cumulative, likelihoods = np.cumsum(table, axis=1), np.ascontiguousarray(table.T, np.float32)
        starts = (_GOLDEN * np.arange(len(self.codes))) % 1
        drawn = starts * cumulative[self.codes, -1]
        released = (cumulative[self.codes] < drawn[:, None]).sum(axis=1)
        return float(((self.laws * likelihoods[released]).argmax(axis=1) == self.codes).mean())


def _k_means(points: Floats, n_clusters: int, seed: int) -> NDArray[np.int32]:
    """SciPy's k-means from greedy k-means++, for scikit-learn takes 0.7 s to load: a sixth of a plan's time."""
    from scipy.cluster.vq import kmeans2

    rng = np.random.default_rng(seed)
    means, apart = points[rng.integers(len(points), size=1)], np.full(len(points), np.inf)
    while True:
        apart = np.minimum(apart, ((points - means[-1]) ** 2).sum(axis=1, dtype=np.float64))
        if len(means) == n_clusters:
            break
        tried = points[rng.choice(len(points), size=_N_TRIED, p=apart / apart.sum())]
        left = np.minimum(apart, ((points - tried[:, None]) ** 2).sum(axis=2)).sum(axis=1)
        means = np.vstack([means, tried[left.argmin()]])
    with warnings.catch_warnings():
        # A cluster that becomes empty is a class of few records.
        warnings.simplefilter("ignore", UserWarning)
        found: NDArray[np.int32] = kmeans2(points, means, iter=10, minit="matrix")[1]
    return found


def _cells(codes: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Few states of about equally many records, a missing cell the first of them."""
    known = codes[codes >= 0]
    if not len(known):
        return np.zeros(len(codes), np.uint8)
    edges = np.unique(np.quantile(known, np.linspace(0, 1, _CELLS + 1)[1:-1], method="lower"))
    return np.where(codes < 0, 0, 1 + np.searchsorted(edges, codes)).astype(np.uint8)


def _observed(cells: NDArray[np.uint8]) -> Observed:
    empty = np.empty((len(cells), 0))
    return Observed(np.ascontiguousarray(cells), empty.astype(np.uint8), empty.astype(np.float32))


def _without(parts: tuple[Values, ...], place: int) -> tuple[Values, ...]:
    return parts[:place] + parts[place + 1 :]
