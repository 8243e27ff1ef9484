"""How much trees that learn through the noise add to the own columns: grown on some rows, compared on others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from opboost.arrays import Values
from opboost.denoise.comparison import is_worse, squared_errors
from opboost.denoise.mixture import States
from opboost.denoise.sources import Source
from opboost.fitting.noised_table import NoiseChoice, Noised, in_bins, versions_of
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

# Parts of the rows, each of which is held out once to compare candidates on.
N_PARTS = 3

# Shares of the columns' variance that draws leave open: up to the first one, trees on draws by turns with the released
# codes serve better than draws alone; above the second one, worse. Between them held-out rows decide, by so many
# standard errors (`docs/architecture/noise.md`).
OPEN_SHARES, _AHEAD = (0.1, 0.25), 0.5

# Shares of the trees on draws that are compared, what is expected of them before, and how surely (a deviation): chosen
# inside training rows of nine tables together; `docs/architecture/noise.md` has what leaving one out says.
SHARES = np.arange(21) / 10
_EXPECTED_SHARE, _DEVIATION = 1.0, 0.25

# Held-out rows see little of effects that are narrower than the noise, but all harm: unless trees on draws are behind
# those on the own columns by so much, relatively, no more rows than these speak for a share below what is expected.
_HARM, _COUNTED_ROWS = 0.005, 300

# Share below which the passive columns are left out, and how much more of trees on released codes exact ones bear than
# held-out released ones (`docs/architecture/noise.md`).
LEAST_BLEND, _OF_EXACT = 0.15, 2.0


def n_draws(n_rows: int) -> int:
    """Draws of a table of so many rows that trees are grown on by turns."""
    return min(MOST_DRAWS, max(FEWEST_DRAWS, _DRAWN_ROWS // n_rows))


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRows:
    """Rows that candidates are scored on.

    Attributes
    ----------
    table : BinnedTable
        The own columns, in bins.
    versions : Alternates
        Of the noised columns: draws, and the released codes last; or what is known of them alone.
    targets : ndarray of float64, shape (n_rows, n_outputs)
    weights : ndarray of float64, shape (n_rows,)
    """

    table: BinnedTable
    versions: Alternates
    targets: Values
    weights: Values

    def errors(self, predictions: Values) -> tuple[Values, Values]:
        """Of each row's prediction from its exact codes, drawn or known, and from the released ones or known."""
        draws, last = predictions[:-1], ((self.targets - predictions[-1]) ** 2).sum(axis=1)
        exact = squared_errors(self.targets, draws) if len(draws) else last
        return self.weights * exact, self.weights * last


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """Rows that candidates are grown on, and rows that they are scored on.

    Attributes
    ----------
    table : BinnedTable
    alternates : Alternates
        Draws, the released codes and nothing.
    labels, weights : ndarray of float64, shape (n_rows,)
    scored : ScoredRows
    recipe : Recipe
    """

    table: BinnedTable
    alternates: Alternates
    labels: Values
    weights: Values
    scored: ScoredRows
    recipe: Recipe

    def scores(self, choice: NoiseChoice) -> Values:
        """Of the scored rows' versions, by trees grown on a choice, shape ``(n_versions, n_outputs, n_rows)``."""
        turns, of = replace(self.alternates, turns=choice.turns(len(self.alternates) - 2)), self.scored
        trees, base_scores = self.recipe.grow(self.table, self.labels, self.weights, turns)
        return np.stack(raw_scores(replace(self.table, bins=of.table.bins), trees, base_scores, of.versions))

    def errors(self, scores: Values) -> tuple[Values, Values]:
        """Of the scored rows, as `ScoredRows.errors`."""
        of = self.scored
        return of.errors(np.stack([self.recipe.loss.predictions(one.T).reshape(len(of.targets), -1) for one in scores]))


def choose(
    noised: Noised,
    sources: Sequence[Source],
    states: States,
    blind: States,
    labels: Values,
    weights: Values,
    recipe: Recipe,
    known: KnownRows | None,
    *,
    rng: np.random.Generator,
) -> tuple[NoiseChoice, float]:
    """Compare candidates on known rows, or on each part of the rows, grown on the others.

    Parameters
    ----------
    noised : Noised
    sources : sequence of Source
    states, blind : ndarray of uint8, shape (n_draws, n_sources, n_rows)
        Draws given the labels, to grow on, and without them, to score on.
    labels, weights : ndarray of float64, shape (n_rows,)
    recipe : Recipe
    known : KnownRows, optional
    rng : numpy Generator
        For the parts.

    Returns
    -------
    choice : NoiseChoice
    share : float
        Of the trees of this choice in the scores; those on the own columns have the rest.
    """
    trials = _trials(noised, sources, states, blind, labels, weights, recipe, known, rng=rng)
    is_open = _open_share(states)
    usual = NoiseChoice.CORRECTED_AND_PLAIN if is_open <= OPEN_SHARES[1] else NoiseChoice.CORRECTED
    learned = [trial.scores(usual) for trial in trials]
    if OPEN_SHARES[0] < is_open <= OPEN_SHARES[1]:
        draws = [trial.scores(NoiseChoice.CORRECTED) for trial in trials]
        if is_worse(_errors(trials, learned)[0], _errors(trials, draws)[0], z=_AHEAD):
            usual, learned = NoiseChoice.CORRECTED, draws
    own = [trial.scores(NoiseChoice.ALONE) for trial in trials]
    shares = SHARES[SHARES <= 1] if recipe.constraints.monotone.any() else SHARES
    blends = ([a + share * (b - a) for a, b in zip(own, learned, strict=True)] for share in shares)
    errors = np.stack([_errors(trials, blend)[0] for blend in blends])
    share = float(shares[_most_likely(shares, errors)])
    if share >= LEAST_BLEND:
        return usual, share
    # Whether released codes help to predict from released codes needs no model of what lies behind them; of exact ones
    # they say about twice as much.
    plain = [trial.scores(NoiseChoice.PLAIN) for trial in trials]
    blends = ([a + part * (b - a) for a, b in zip(own, plain, strict=True)] for part in SHARES)
    parts = np.array([_errors(trials, blend)[1].mean() for blend in blends])
    share = min(1.0, (1.0 if known else _OF_EXACT) * float(SHARES[parts.argmin()]))
    return (NoiseChoice.PLAIN, share) if share >= LEAST_BLEND else (NoiseChoice.ALONE, 1.0)


def _errors(trials: Sequence[Trial], scores: Sequence[Values]) -> list[Values]:
    """Of all scored rows, as `ScoredRows.errors`."""
    parts = [trial.errors(one) for trial, one in zip(trials, scores, strict=True)]
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def _most_likely(shares: Values, errors: Values) -> int:
    """Which share, of 0 and others, is most likely, given each row's errors and what is expected of shares."""
    means = errors.mean(axis=1)

    def best(n_rows: int) -> int:
        misfits = n_rows * means / max(means.min(), 1e-12) + ((shares - _EXPECTED_SHARE) / _DEVIATION) ** 2
        return int(misfits.argmin())

    if means[np.abs(shares - 1).argmin()] > (1 + _HARM) * means[0]:
        return best(errors.shape[1])
    return max(best(errors.shape[1]), best(min(errors.shape[1], _COUNTED_ROWS)))


def _open_share(states: States) -> float:
    """Mean share of the variance of a source's states that lies between the draws of the same row."""
    return float(np.mean([one.var(axis=0, ddof=1).mean() / max(one.var(), 1e-12) for one in np.swapaxes(states, 0, 1)]))


def _trials(
    noised: Noised,
    sources: Sequence[Source],
    states: States,
    blind: States,
    labels: Values,
    weights: Values,
    recipe: Recipe,
    known: KnownRows | None,
    *,
    rng: np.random.Generator,
) -> list[Trial]:
    """One for each part of the rows, or one whose scored rows are known."""
    most = min(recipe.parameters.max_bin, MOST_BINS)
    binned, alternates = versions_of(noised, sources, states, None, max_bin=most)
    table, targets = noised.filled(binned), recipe.targets(labels)
    if known is not None:
        return [Trial(table, alternates, labels, weights, _known_rows(known, noised, binned, recipe), recipe)]
    seen = np.concatenate([in_bins(noised, sources, binned, blind), alternates.versions[[-2]]])
    versions = Alternates(alternates.columns, seen, tuple(range(len(seen))))
    part, trials = rng.permutation(len(labels)) % N_PARTS, []
    for k in range(N_PARTS):
        kept, held = np.flatnonzero(part != k), np.flatnonzero(part == k)
        scored = ScoredRows(table.of_rows(held), versions.of_rows(held), targets[held], weights[held])
        inside = table.of_rows(kept), alternates.of_rows(kept)
        trials.append(Trial(*inside, labels[kept], weights[kept], scored, recipe))
    return trials


def _known_rows(known: KnownRows, noised: Noised, binned: Sequence[BinnedColumn], recipe: Recipe) -> ScoredRows:
    """Rows whose codes are known, in the bins of the training rows."""
    seen = [bins_between(known.columns[c], one.cuts) for c, one in zip(noised.numbers, binned, strict=True)]
    versions = Alternates(np.array(noised.numbers, np.int64), np.array(seen, np.uint8)[None], (0,))
    weights = recipe.parameters.weighted(known.labels, np.ones(len(known.labels)), recipe.loss)
    return ScoredRows(known.binned(noised.table), versions, recipe.targets(known.labels), weights)
