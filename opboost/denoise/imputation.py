"""Draws of the exact codes, given the released ones, the label and what the active party knows besides.

Without the label among them, estimated effects would stay attenuated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import RankRows, Values
from opboost.denoise.mixture import LatentClasses, Observed, States
from opboost.denoise.sources import Source

# Rows that a mixture is fitted on, at most.
FITTED_ROWS = 24_000

# Rows that are drawn for at a time: their responsibilities are held.
DRAWN_ROWS = 1 << 16

# Classes of a mixture, for each class of the label at least and in all at most; steps of the fit.
N_CLASSES, _PER_LABEL, _MOST_CLASSES, N_STEPS = 25, 3, 100, 100

# Rows of a class on average, at least.
_ROWS_PER_CLASS = 25

# Standardised numbers are clipped to so many deviations.
_FARTHEST = 4.0


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Labels and own-column scores of every row, which the active party knows exactly.

    Attributes
    ----------
    label_numbers : ndarray of float32, shape (n_rows, 0 or 1)
        A label that is a number, standardised.
    label_states : ndarray of uint8 or wider, shape (n_rows, 0 or 1)
        A label that is a class.
    n_classes : int
        Of the label; 0 for a number.
    numbers : ndarray of float32, shape (n_rows, n_numbers)
        Scores made of its own columns, standardised; NaN where nothing is known.
    """

    label_numbers: NDArray[np.float32]
    label_states: NDArray[np.unsignedinteger]
    n_classes: int
    numbers: NDArray[np.float32]

    @classmethod
    def of(
        cls, labels: Values, numbers: Values, *, n_classes: int, like: tuple[Values, Values] | None = None
    ) -> Evidence:
        """Evidence of labels, classes ``0 .. n_classes - 1`` or numbers if `n_classes` is 0, and of own columns.

        Numbers are standardised by themselves, or by the labels and numbers in `like`.
        """
        known_labels, known_numbers = like or (labels, numbers)
        own_numbers = standardised(numbers, known_numbers)
        if n_classes:
            states = labels.astype(np.min_scalar_type(n_classes - 1))[:, None]
            return cls(np.empty((len(labels), 0), np.float32), states, n_classes, own_numbers)
        label_numbers = standardised(labels[:, None], known_labels[:, None])
        return cls(label_numbers, np.empty((len(labels), 0), np.uint8), 0, own_numbers)

    def rows(self, rows: NDArray[np.int64]) -> Evidence:
        """Evidence of the rows with these numbers."""
        states, numbers = self.label_states[rows], self.numbers[rows]
        return Evidence(self.label_numbers[rows], states, self.n_classes, numbers)


@dataclass(frozen=True, slots=True, eq=False)
class Imputation:
    """A fitted model of the exact codes behind the released columns, and the rows to draw for.

    Attributes
    ----------
    sources : tuple of Source
    classes : LatentClasses
        The label is its first exact variable, or the first number.
    evidence : Evidence
        Of the same rows as the sources.
    """

    sources: tuple[Source, ...]
    classes: LatentClasses
    evidence: Evidence

    @classmethod
    def fit(
        cls, sources: Sequence[Source], evidence: Evidence, rows: NDArray[np.int64], *, rng: np.random.Generator
    ) -> Imputation:
        """Fit on these rows, or on a random sample of `FITTED_ROWS` of them."""
        fitted = np.sort(rng.permutation(rows)[:FITTED_ROWS])
        n_classes = max(N_CLASSES, min(_PER_LABEL * evidence.n_classes, _MOST_CLASSES))
        classes = LatentClasses.fit(
            _observed(sources, evidence, fitted),
            [source.channel.matrix for source in sources],
            [evidence.n_classes] if evidence.n_classes else [],
            n_classes=max(2, min(n_classes, len(fitted) // _ROWS_PER_CLASS)),
            n_steps=N_STEPS,
            rng=rng,
        )
        return cls(tuple(sources), classes, evidence)

    def with_ranks(self, columns: Sequence[RankRows], evidence: Evidence) -> Imputation:
        """The same model, to draw for other rows of the table, given the ranks of all its columns."""
        return replace(self, sources=tuple(source.with_ranks(columns) for source in self.sources), evidence=evidence)

    def of_rows(self, rows: NDArray[np.int64]) -> Imputation:
        """The same model, to draw for the rows with these numbers only."""
        sources = tuple(replace(source, states=source.states[rows]) for source in self.sources)
        return replace(self, sources=sources, evidence=self.evidence.rows(rows))

    def draw(self, n_draws: int, *, with_label: bool = True, seed: int, first_row: int = 0) -> States:
        """Draw the true states of all rows, numbered from `first_row`, with their labels given or without them.

        Returns
        -------
        states : ndarray of uint8, shape (n_draws, n_sources, n_rows)
        """
        n_rows = len(self.sources[0].states)
        states = np.empty((n_draws, len(self.sources), n_rows), np.uint8)
        law = self.classes if with_label else self.without_label()
        cumulative = law.cumulative_laws()
        for first in range(0, n_rows, DRAWN_ROWS):
            rows = slice(first, min(first + DRAWN_ROWS, n_rows))
            observed = _observed(self.sources, self.evidence, rows)
            if not with_label:
                observed = _without_label(observed)
            states[:, :, rows] = law.draw(
                observed, n_draws, seed=seed, first_row=first_row + first, cumulative=cumulative
            )
        return states

    def label_densities(self, states: States) -> Values:
        """Density of each row's label given its own numbers and true states, shape ``(n_versions, n_rows)``.

        Given the true states, the released ones carry no further information on the label.

        Parameters
        ----------
        states : ndarray of uint8, shape (n_versions, n_sources, n_rows)
        """
        law, n_rows = self.without_label(), states.shape[2]
        law = replace(law, channels=tuple(np.eye(len(channel)) for channel in law.channels))
        observed = _without_label(_observed(self.sources, self.evidence, slice(None)))
        class_densities, densities = self._label_densities(), np.empty((len(states), n_rows))
        n_together = max(1, DRAWN_ROWS // max(1, n_rows))
        for first in range(0, len(states), n_together):
            piece = states[first : first + n_together]
            times = (len(piece), 1)
            flat = np.ascontiguousarray(piece.transpose(0, 2, 1)).reshape(-1, piece.shape[1])
            classes = law.classes(Observed(flat, np.tile(observed.states, times), np.tile(observed.numbers, times)))
            piece_classes = classes.reshape(len(piece), n_rows, -1)
            densities[first : first + len(piece)] = (piece_classes * class_densities).sum(axis=2)
        return densities

    def _label_densities(self) -> Values:
        """Density of each row's label in every class, shape ``(n_rows, n_classes)``."""
        if self.evidence.n_classes:
            return self.classes.exact_laws[0][self.evidence.label_states[:, 0]]
        # Loaded here: it takes 0.4 s, which every command would pay.
        from scipy.stats import norm

        return np.asarray(norm.pdf(self.evidence.label_numbers, self.classes.means[0], self.classes.deviations[0]))

    def without_label(self) -> LatentClasses:
        """The mixture's law of everything but the label."""
        if self.classes.exact_laws:
            return self.classes.without(exact=1)
        return self.classes.without(numbers=1)


def standardised(numbers: Values, known: Values | None = None) -> NDArray[np.float32]:
    """Standardise columns by their own mean and deviation, or by those of `known`, and clip what lies far out."""
    known = numbers if known is None else known
    if not known.size:
        return np.empty(numbers.shape, np.float32)
    deviations = np.nanstd(known, axis=0)
    scaled = (numbers - np.nanmean(known, axis=0)) / np.where(deviations > 0, deviations, 1.0)
    return np.clip(scaled, -_FARTHEST, _FARTHEST).astype(np.float32)


def _observed(sources: Sequence[Source], evidence: Evidence, rows: slice | NDArray[np.int64]) -> Observed:
    return Observed(
        np.column_stack([source.states[rows] for source in sources]),
        evidence.label_states[rows],
        np.hstack([evidence.label_numbers[rows], evidence.numbers[rows]]),
    )


def _without_label(observed: Observed) -> Observed:
    if observed.states.shape[1]:
        return Observed(observed.released, observed.states[:, 1:], observed.numbers)
    return Observed(observed.released, observed.states, observed.numbers[:, 1:])
