"""How much trees that learn through the noise add to the own columns: grown on some rows, compared on others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.denoise.comparison import squared_errors
from opboost.denoise.mixture import States
from opboost.denoise.sources import Source
from opboost.fitting.noised_table import Blend, NoiseChoice, Noised, in_bins, versions_of
from opboost.fitting.recipe import Recipe, raw_scores
from opboost.trees.alternating import Alternates
from opboost.trees.binning import BinnedColumn, BinnedTable
from opboost.trees.validation import KnownRows, bins_between

# Draws that trees are grown on by turns, and draws that a held-out row is scored on.
MOST_DRAWS, FEWEST_DRAWS, N_SCORED = 10, 2, 8
# Rows over all draws: in a large table the chance of one draw is the mean of many rows' in every leaf.
_DRAWN_ROWS = 3_000_000

# Bins of a noised column: more lose time and win nothing (`docs/architecture/noise.md`).
MOST_BINS = 64

# Parts of the rows. Each is held out once to compare candidates on, until so many rows were.
N_PARTS, _SCORED_ROWS = 3, 5_000

# Shares of the columns' variance that draws leave open: up to the second one, trees look at draws and at the released
# codes by turns; above the first one, they may look at draws alone (`docs/architecture/noise.md`).
OPEN_SHARES = (0.1, 0.25)

# Up to which released codes alone are a candidate like others. Where draws leave more open, held-out rows show too
# little of what draws bring back: trees on released codes that go on have to win so many times more, others are looked
# at where draws add nothing (`docs/architecture/noise.md`).
_OPEN_FOR_PLAIN, _PLAIN_LEAD = 1 / 3, 1.1

# Shares of the candidates in the scores, what is expected of them before, and how surely (a deviation)
# (`docs/architecture/noise.md`).
SHARES = np.arange(21) / 10
_EXPECTED_SHARE, _DEVIATION = 1.0, 0.25

# Held-out rows see little of effects that are narrower than the noise, but all harm: unless trees on draws are behind
# those on the own columns by so much, relatively, no more rows than these speak for a share below what is expected.
_HARM, _COUNTED_ROWS = 0.0125, 300

# Share below which the passive columns are left out.
LEAST_BLEND = 0.15


def n_draws(n_rows: int) -> int:
    """Draws of a table of so many rows that trees are grown on by turns."""
    return min(MOST_DRAWS, max(FEWEST_DRAWS, _DRAWN_ROWS // n_rows))


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Draws of the exact codes of some rows and of others.

    Attributes
    ----------
    sources : tuple of Source
    states : ndarray of uint8, shape (n_draws, n_sources, n_rows)
        Of rows that candidates are grown on, given their labels.
    blind : ndarray of uint8, shape (n_draws, n_sources, n_others)
        Of rows that they are scored on, without their labels.
    """

    sources: tuple[Source, ...]
    states: States
    blind: States


DrawnFor = Callable[[NDArray[np.int64], NDArray[np.int64]], Drawn]


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRows:
    """Rows that candidates are scored on.

    Attributes
    ----------
    table : BinnedTable
        The own columns, in bins.
    versions : Alternates
        Of the noised columns: draws, or what is known of them.
    targets : ndarray of float64, shape (n_rows, n_outputs)
    weights : ndarray of float64, shape (n_rows,)
    """

    table: BinnedTable
    versions: Alternates
    targets: Values
    weights: Values

    def errors(self, predictions: Values) -> Values:
        """Of each row's predictions from its versions, shape ``(n_versions, n_rows, n_outputs)``."""
        if len(predictions) == 1:
            return self.weights * ((self.targets - predictions[0]) ** 2).sum(axis=1)
        return self.weights * squared_errors(self.targets, predictions)


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """Rows that candidates are grown on, and rows that they are scored on.

    Attributes
    ----------
    own : BinnedTable
        Whose noised columns hold nothing that a tree could split.
    table : BinnedTable
    alternates : Alternates
        Draws, the released codes and nothing.
    labels, weights : ndarray of float64, shape (n_rows,)
    scored : ScoredRows
    recipe : Recipe
    """

    own: BinnedTable
    table: BinnedTable
    alternates: Alternates
    labels: Values
    weights: Values
    scored: ScoredRows
    recipe: Recipe

    def scores(self, choice: NoiseChoice, margins: Values | float = 0.0) -> Values:
        """Of the scored rows' versions, by trees grown on a choice, shape ``(n_versions, n_outputs, n_rows)``.

        `margins` are what the trees go on from, which these scores leave out.
        """
        turns, of = replace(self.alternates, turns=choice.turns(len(self.alternates) - 2)), self.scored
        trees, base_scores = self.recipe.grow(self.table, self.labels, self.weights, turns, margins=margins)
        return np.stack(raw_scores(replace(self.table, bins=of.table.bins), trees, base_scores, of.versions))

    @property
    def base_scores(self) -> Values:
        """Where scores start, shape ``(n_outputs, 1)``."""
        return self.recipe.base_scores(self.labels, self.weights)[:, None]

    def margins(self) -> Values:
        """What trees on the own columns that have not seen a row say of it, shape ``(n_outputs, n_rows)``."""
        return self.recipe.margins(self.own, self.labels, self.weights)

    def errors(self, scores: Values) -> Values:
        """Of the scored rows, as `ScoredRows.errors`."""
        of = self.scored
        return of.errors(np.stack([self.recipe.loss.predictions(one.T).reshape(len(of.targets), -1) for one in scores]))


def choose(
    noised: Noised,
    labels: Values,
    weights: Values,
    recipe: Recipe,
    known: KnownRows | None,
    drawn_for: DrawnFor,
    *,
    may_go_on: bool = True,
    rng: np.random.Generator,
) -> Blend:
    """Compare candidates on known rows, or on each part of the rows, grown on the others.

    Parameters
    ----------
    noised : Noised
    labels, weights : ndarray of float64, shape (n_rows,)
    recipe : Recipe
    known : KnownRows, optional
    drawn_for : callable
        Draws for some rows to grow on and others to score on, given both. Where what it has of the former depends on
        labels of the latter, trees on draws seem better than they are.
    may_go_on : bool
        Whether trees that go on from the scores of trees on the own columns are candidates.
    rng : numpy Generator
        For the parts.
    """
    trials, is_open = _trials(noised, labels, weights, recipe, known, drawn_for, rng=rng)
    own = [trial.scores(NoiseChoice.ALONE) for trial in trials]
    shares = SHARES[SHARES <= 1] if recipe.constraints.monotone.any() else SHARES
    may_go_on = may_go_on and noised.has_own
    starts = (False, True) if may_go_on else (False,)
    margins = [trial.margins() for trial in trials] if may_go_on else []
    n_scored = sum(len(trial.scored.targets) for trial in trials)

    @cache
    def best(choice: NoiseChoice, goes_on: bool) -> tuple[float, Blend]:
        """With the part of the own columns' error that it wins."""
        if goes_on:
            steps = [trial.scores(choice, of) - trial.base_scores for trial, of in zip(trials, margins, strict=True)]
        else:
            steps = [trial.scores(choice) - a for trial, a in zip(trials, own, strict=True)]
        errors = np.empty(len(shares))
        for s, share in enumerate(shares):
            parts = zip(trials, own, steps, strict=True)
            errors[s] = np.concatenate([trial.errors(a + share * step) for trial, a, step in parts]).mean()
        # Released codes bring no narrow effects back, so held-out rows see what trees on them are worth.
        at = _most_likely(shares, errors, n_scored, n_scored if choice is NoiseChoice.PLAIN else _COUNTED_ROWS)
        won = 1.0 - float(errors[at] / max(errors[0], 1e-12))
        is_doubted = choice is NoiseChoice.PLAIN and is_open > _OPEN_FOR_PLAIN
        return won / _PLAIN_LEAD if is_doubted else won, Blend(choice, float(shares[at]), goes_on)

    _, blend = max((best(*one) for one in _candidates(is_open, starts)), key=itemgetter(0))
    if blend.share < LEAST_BLEND:
        _, blend = max((best(NoiseChoice.PLAIN, goes_on) for goes_on in starts), key=itemgetter(0))
    return blend if blend.share >= LEAST_BLEND else Blend(NoiseChoice.ALONE)


def _candidates(is_open: float, starts: Sequence[bool]) -> Iterator[tuple[NoiseChoice, bool]]:
    """What trees may look at, and whether they go on from the own columns' scores."""
    usual = by_turns(is_open)
    for goes_on in starts:
        yield usual, goes_on
        if goes_on or is_open <= _OPEN_FOR_PLAIN:
            yield NoiseChoice.PLAIN, goes_on
    if usual is NoiseChoice.CORRECTED_AND_PLAIN and is_open > OPEN_SHARES[0]:
        yield NoiseChoice.CORRECTED, False


def by_turns(is_open: float) -> NoiseChoice:
    """What trees on draws look at, where these leave so much of the columns' variance open."""
    return NoiseChoice.CORRECTED_AND_PLAIN if is_open <= OPEN_SHARES[1] else NoiseChoice.CORRECTED


def _most_likely(shares: Values, errors: Values, n_rows: int, counted_rows: int = _COUNTED_ROWS) -> int:
    """Which share, of 0 and others, is most likely, given mean errors of some rows and what is expected before."""

    def best(counted: int) -> int:
        misfits = counted * errors / max(errors.min(), 1e-12) + ((shares - _EXPECTED_SHARE) / _DEVIATION) ** 2
        return int(misfits.argmin())

    if errors[np.abs(shares - 1).argmin()] > (1 + _HARM) * errors[0]:
        return best(n_rows)
    return max(best(n_rows), best(min(n_rows, counted_rows)))


def open_share(states: States) -> float:
    """Mean share of the variance of a source's states that lies between the draws of the same row."""
    return float(np.mean([one.var(axis=0, ddof=1).mean() / max(one.var(), 1e-12) for one in np.swapaxes(states, 0, 1)]))


def _trials(
    noised: Noised,
    labels: Values,
    weights: Values,
    recipe: Recipe,
    known: KnownRows | None,
    drawn_for: DrawnFor,
    *,
    rng: np.random.Generator,
) -> tuple[list[Trial], float]:
    """One for each part of the rows, or one whose scored rows are known; and what draws leave open."""
    most, targets, every = min(recipe.parameters.max_bin, MOST_BINS), recipe.targets(labels), np.arange(len(labels))
    if known is not None:
        drawn = drawn_for(every, every[:0])
        binned, alternates = versions_of(noised, drawn.sources, drawn.states, None, max_bin=most)
        scored = _known_rows(known, noised, binned, recipe)
        known_rows = noised.table, noised.filled(binned), alternates, labels, weights, scored, recipe
        return [Trial(*known_rows)], open_share(drawn.states)
    part, trials, opens = rng.permutation(len(labels)) % N_PARTS, [], []
    for k in range(min(N_PARTS, 1 + N_PARTS * _SCORED_ROWS // (len(labels) + 1))):
        kept, held = np.flatnonzero(part != k), np.flatnonzero(part == k)
        inside, outside, drawn = noised.of_rows(kept), noised.of_rows(held), drawn_for(kept, held)
        binned, alternates = versions_of(inside, drawn.sources, drawn.states, None, max_bin=most)
        seen = in_bins(outside, drawn.sources, binned, drawn.blind)
        versions = Alternates(alternates.columns, seen, tuple(range(len(seen))))
        scored = ScoredRows(outside.table, versions, targets[held], weights[held])
        tables = inside.table, inside.filled(binned)
        trials.append(Trial(*tables, alternates, labels[kept], weights[kept], scored, recipe))
        opens.append(open_share(drawn.states))
    return trials, float(np.mean(opens))


def _known_rows(known: KnownRows, noised: Noised, binned: Sequence[BinnedColumn], recipe: Recipe) -> ScoredRows:
    """Rows whose codes are known, in the bins of the training rows."""
    seen = [bins_between(known.columns[c], one.cuts) for c, one in zip(noised.numbers, binned, strict=True)]
    versions = Alternates(np.array(noised.numbers, np.int64), np.array(seen, np.uint8)[None], (0,))
    weights = recipe.parameters.weighted(known.labels, np.ones(len(known.labels)), recipe.loss)
    return ScoredRows(known.binned(noised.table), versions, recipe.targets(known.labels), weights)
