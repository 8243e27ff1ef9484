"""Latent classes behind released columns: fitted by expectation and maximisation, with a deconvolution step.

Within a class the columns are independent. Of a column that went through a channel the class has a free law of the
*true* states; the step for it is that of Richardson and Lucy. Exact variables have a free law of their states, or a
normal one. The idea is classical: Dempster, Laird and Rubin (1977); multiple imputation is Rubin's (1987).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.denoise.clustering import Clustering, k_means
from opboost.denoise.kernels import draw_states, responsibilities, weighted_counts

States = NDArray[np.uint8]
Floats = NDArray[np.float32]

# Records that the overall law of a column counts for in every class.
PRIOR_RECORDS = 2.0

# The same for exact variables, the label among them: their counts hold no noise (`docs/architecture/noise-trials.md`).
_EXACT_RECORDS = 0.2

# Records that the overall variance of a number counts for in a class, and which share of it stands for the class's.
_NORMAL_RECORDS, _NORMAL_SHARE = 1.0, 0.2

# Steps of the deconvolution of a column's overall law.
_MARGIN_STEPS = 200

_LEAST = 1e-30


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """Observed variables of rows: released states, exact states and numbers.

    Attributes
    ----------
    released : ndarray of uint8, shape (n_rows, n_sources)
        Released states.
    states : ndarray of uint8 or wider, shape (n_rows, n_exact)
        States of exact variables.
    numbers : ndarray of float32, shape (n_rows, n_numbers)
        Of about unit variance; NaN where a number is unknown.
    """

    released: States
    states: NDArray[np.unsignedinteger]
    numbers: Floats

    def __len__(self) -> int:
        return len(self.released)

    def rows(self, rows: slice | NDArray[np.int64]) -> Observed:
        """Variables of the rows with these numbers."""
        return Observed(self.released[rows], self.states[rows], self.numbers[rows])


@dataclass(frozen=True, slots=True, eq=False)
class LatentClasses:
    """Mixture of latent classes, fitted to released and exact variables.

    Attributes
    ----------
    channels : tuple of ndarray of float64, shape (n_true, n_released)
        Noise channel of each source.
    weights : ndarray of float64, shape (n_classes,)
    laws : tuple of ndarray of float64, shape (n_classes, n_true)
        Of each source's true state, within a class.
    exact_laws : tuple of ndarray of float64, shape (n_states, n_classes)
        Of each exact variable's state, within a class.
    means, deviations : ndarray of float64, shape (n_numbers, n_classes)
    """

    channels: tuple[Values, ...]
    weights: Values
    laws: tuple[Values, ...]
    exact_laws: tuple[Values, ...]
    means: Values
    deviations: Values

    @classmethod
    def fit(
        cls,
        observed: Observed,
        channels: Sequence[Values],
        n_states: Sequence[int],
        *,
        n_classes: int,
        n_steps: int,
        prior: float = PRIOR_RECORDS,
        cluster: Clustering | None = None,
        rng: np.random.Generator,
    ) -> LatentClasses:
        """Fit a mixture of `n_classes` to rows, in `n_steps` steps.

        Parameters
        ----------
        observed : Observed
        channels : sequence of ndarray, shape (n_true, n_released)
        n_states : sequence of int
            States of each exact variable.
        n_classes, n_steps : int
        prior : float
            Records that the overall law of a source counts for in every class.
        cluster : callable, optional
            Takes points, the largest number of clusters and a seed; by default scikit-learn's k-means.
        rng : numpy Generator
            For the initial classes.
        """
        margins = [
            margin(c, np.bincount(z, minlength=c.shape[1])) for c, z in zip(channels, observed.released.T, strict=True)
        ]
        shares = [np.bincount(s, minlength=n) / len(observed) for n, s in zip(n_states, observed.states.T, strict=True)]
        classes = _start(observed, n_classes, cluster or k_means, rng)
        laws = [np.tile(law, (n_classes, 1)) for law in margins]
        known, model = _Moments.of(observed.numbers), None
        for step in range(n_steps):
            counts = _counts(observed, [c.shape[1] for c in channels], n_states, classes)
            n_repeats = 3 if step < 5 else 1
            for s, (channel, law, overall) in enumerate(zip(channels, laws, margins, strict=True)):
                for _ in range(n_repeats):
                    law = law * ((counts[s].T / np.maximum(law @ channel, _LEAST)) @ channel.T) + prior * overall
                    law /= law.sum(axis=1, keepdims=True)
                laws[s] = law
            exact = [
                c + _EXACT_RECORDS * share[:, None] for c, share in zip(counts[len(channels) :], shares, strict=True)
            ]
            means, deviations = _normal_laws(known, classes)
            sizes = classes.sum(axis=0, dtype=np.float64) + 1
            model = cls(
                tuple(channels),
                sizes / sizes.sum(),
                tuple(laws),
                tuple(c / c.sum(axis=0) for c in exact),
                means,
                deviations,
            )
            model._expect(observed, out=classes)
        assert model is not None
        return model

    def without(self, *, exact: int = 0, numbers: int = 0) -> LatentClasses:
        """The law of the other variables: the first of the exact ones and of the numbers are left out."""
        return replace(
            self, exact_laws=self.exact_laws[exact:], means=self.means[numbers:], deviations=self.deviations[numbers:]
        )

    def classes(self, observed: Observed) -> Floats:
        """Probability of each class given the observed variables of each row, shape ``(n_rows, n_classes)``."""
        out = np.empty((len(observed), len(self.weights)), np.float32)
        self._expect(observed, out=out)
        return out

    def draw(
        self,
        observed: Observed,
        n_draws: int,
        *,
        seed: int,
        first_row: int = 0,
        cumulative: Sequence[Floats] | None = None,
    ) -> States:
        """Draws of the true states given the observed variables of each row, shape ``(n_draws, n_sources, n_rows)``.

        A row's draws depend on the seed and the row's number alone, counted from `first_row`: rows may come in pieces,
        with the same `cumulative` laws for all of them.
        """
        classes, tables = self.classes(observed), self.cumulative_laws() if cumulative is None else cumulative
        out = np.empty((n_draws, len(self.channels), len(observed)), np.uint8)
        draw_states(
            np.uint64(seed),
            first_row,
            classes,
            observed.released,
            np.concatenate(tables),
            _begins(tables),
            np.array([c.shape[0] for c in self.channels]),
            np.array([c.shape[1] for c in self.channels]),
            out,
        )
        return out

    def cumulative_laws(self) -> list[Floats]:
        """``Pr[state <= x | class, released state]`` of every source, flat from ``(n_classes, n_released, n_true)``."""
        tables = []
        for law, channel in zip(self.laws, self.channels, strict=True):
            cumulative = np.cumsum(law[:, None, :] * channel.T[None], axis=2)
            cumulative /= np.maximum(cumulative[:, :, -1:], _LEAST)
            # States of probability 0 are never drawn: the last possible one already has the value 1.
            tables.append(np.where(cumulative >= 1 - 1e-12, 1.0, cumulative).astype(np.float32).ravel())
        return tables

    def _expect(self, observed: Observed, *, out: Floats) -> float:
        """Expectation step: write the probability of each class for each row to `out`."""
        released_logs = [np.log(np.maximum(law @ c, _LEAST)).T for law, c in zip(self.laws, self.channels, strict=True)]
        tables = [*released_logs, *(np.log(np.maximum(law, _LEAST)) for law in self.exact_laws)]
        spread = np.maximum(self.deviations, 1e-3)
        return float(
            responsibilities(
                np.hstack([observed.released, observed.states]),
                _begins(tables),
                np.ascontiguousarray(np.concatenate(tables), np.float32),
                np.ascontiguousarray(observed.numbers),
                np.log(self.weights).astype(np.float32),
                self.means.astype(np.float32),
                (0.5 / spread**2).astype(np.float32),
                -np.log(spread).astype(np.float32),
                out,
            )
        )


def margin(channel: Values, counts: Values | NDArray[np.int64]) -> Values:
    """The law of a column's true states alone: `counts` of its released states, deconvolved (Richardson and Lucy)."""
    law = np.full(len(channel), 1.0 / len(channel))
    shares = counts / counts.sum()
    for _ in range(_MARGIN_STEPS):
        law = law * (channel @ (shares / np.maximum(law @ channel, _LEAST)))
        law /= law.sum()
    return law


def _start(observed: Observed, n_classes: int, cluster: Clustering, rng: np.random.Generator) -> Floats:
    """Initial class probabilities of each row: clusters of standardised states and numbers, softened."""
    released = observed.released.astype(np.float32)
    parts = [0.5 * (released - released.mean(axis=0)) / (released.std(axis=0) + 1e-9), np.nan_to_num(observed.numbers)]
    parts += [
        (observed.states[:, [v]] == np.unique(observed.states[:, v])).astype(np.float32)
        for v in range(observed.states.shape[1])
    ]
    points = np.hstack(parts).astype(np.float32)
    n_clusters = min(n_classes, len(np.unique(points, axis=0)))
    clusters = cluster(points, n_clusters, int(rng.integers(2**31)))
    classes = np.full((len(observed), n_classes), 0.2 / n_classes, np.float32)
    classes[np.arange(len(observed)), clusters] += 0.8
    return classes


def _counts(
    observed: Observed, n_released: Sequence[int], n_states: Sequence[int], classes: Floats
) -> list[NDArray[np.float64]]:
    """Weighted counts of every variable's states per class, shape ``(n_states, n_classes)`` each."""
    sizes = [*n_released, *n_states]
    out = np.zeros((sum(sizes), classes.shape[1]))
    begins = np.cumsum([0, *sizes])
    weighted_counts(np.hstack([observed.released, observed.states]), begins, classes, out)
    return [out[begin:end] for begin, end in itertools.pairwise(begins)]


class _Moments(NamedTuple):
    """Sums behind the normal laws of numbers, computed once for all steps; unknown numbers are 0 in them."""

    is_known: Floats
    numbers: Floats
    squares: Floats
    overall: Values

    @classmethod
    def of(cls, numbers: Floats) -> _Moments:
        is_known = ~np.isnan(numbers)
        filled = np.where(is_known, numbers, np.float32(0))
        overall = np.nanvar(numbers, axis=0)[:, None] if numbers.size else np.empty((0, 1))
        return cls(is_known.astype(np.float32), filled, filled**2, overall)


def _normal_laws(known: _Moments, classes: Floats) -> tuple[Values, Values]:
    """Mean and deviation of every number in every class, shape ``(n_numbers, n_classes)`` each."""
    mass = known.is_known.T @ classes + 1e-9
    means = (known.numbers.T @ classes) / mass
    squares = np.maximum(known.squares.T @ classes - mass * means**2, 0)
    variances = (squares + _NORMAL_RECORDS * _NORMAL_SHARE * known.overall) / (mass + _NORMAL_RECORDS)
    return means.astype(np.float64), np.sqrt(variances).astype(np.float64) + 1e-3


def _begins(tables: Sequence[NDArray[np.floating]]) -> NDArray[np.int64]:
    return np.array([0, *np.cumsum([len(table) for table in tables])[:-1]], np.int64)
