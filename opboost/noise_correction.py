"""Train through the noise: draws of the exact codes in place of the released ones, where that is likely to help.

`opboost.denoise` says what the exact codes may have been, `opboost.trees` grows trees on several versions of a column.
All of it works on what was released already, so it costs no privacy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask, Values
from opboost.denoise.comparison import is_worse, squared_errors
from opboost.denoise.imputation import FITTED_ROWS, N_CLASSES, Evidence, Imputation
from opboost.denoise.sources import RankSource, sources_of
from opboost.noised_table import Filled, NoiseChoice, Noised, bins_of_ranks, places, plain_bins, versions_of
from opboost.trees.alternating import Alternates, FollowedVersions
from opboost.trees.binning import BinnedColumn, BinnedTable
from opboost.trees.boosting import BoostingParameters, boost_table
from opboost.trees.constraints import Constraints
from opboost.trees.kernels.threads import threads_for
from opboost.trees.losses import Logistic, Loss, Ordinal, Softmax
from opboost.trees.tree import Tree
from opboost.trees.validation import KnownRows, bins_between

# Draws that trees are grown on by turns, and draws that a held-out row is scored on.
N_DRAWS, N_SCORED = 10, 8

# Bins of a noised column: more lose time and win nothing (`docs/noise.md`).
MOST_BINS = 64

# Rows below which no mixture is fitted and released codes are taken as they are.
LEAST_ROWS = 400

# Rows that candidates are compared on, and which share of them is held out.
COMPARED_ROWS, HELD_OUT_SHARE = 15_000, 1 / 3

# Most rounds of a candidate, its highest rate unless a higher one is chosen, and its deepest trees.
_TRIAL_ROUNDS, _TRIAL_RATE, _TRIAL_DEPTH = 60, 0.15, 4

# Held-out rows, known exactly, from which on candidates are compared on them.
LEAST_KNOWN = 200

# Standard errors by which a candidate must be ahead of the model that usually serves best.
AHEAD = 1.5

# Share of the columns' variance that draws leave open, from which on draws alone serve better than by turns with the
# released codes: on seven tables, blends lost up to .07 at a whole-range loss of 2 to 8, and won up to .02 at 32.
OPEN_SHARE = 0.25

# Parameters that suit noise, for those that are left open: chosen by cross-validation inside the training parts of ten
# tables, once for all budgets (`docs/architecture/noise.md`).
CALM: dict[str, Any] = {"max_depth": 4, "n_estimators": 200, "learning_rate": 0.05, "subsample": 0.5}

# Trees of the active party's own columns that sum up what these say of the label.
_OWN_TREES = BoostingParameters(n_estimators=40, max_depth=4, learning_rate=0.15)
_FOLDS = 3


def calmed(parameters: BoostingParameters, left_open: Collection[str]) -> BoostingParameters:
    """The parameters, those that are left open as suits noise; the rate of learning and the rounds go together."""
    pair = {"n_estimators", "learning_rate"}
    changed = set(left_open) if pair <= set(left_open) else set(left_open) - pair
    return replace(parameters, **{name: value for name, value in CALM.items() if name in changed})


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """How trees are grown.

    Attributes
    ----------
    parameters : BoostingParameters
    loss : Loss
    constraints : Constraints
    seed : int or None
    """

    parameters: BoostingParameters
    loss: Loss
    constraints: Constraints
    seed: int | None

    @property
    def n_classes(self) -> int:
        """Of the label; 0 for a number."""
        match self.loss:
            case Logistic():
                return 2
            case Softmax(n) | Ordinal(n):
                return n
        return 0

    def brief(self) -> Recipe:
        """As many trees as it takes to compare tables, flatter and learning as much faster."""
        n_rounds, rate = self.parameters.n_estimators, self.parameters.learning_rate
        n_trials = min(n_rounds, _TRIAL_ROUNDS)
        rate = max(rate, min(rate * n_rounds / max(n_trials, 1), _TRIAL_RATE))
        depth = min(self.parameters.max_depth or _TRIAL_DEPTH, _TRIAL_DEPTH)
        chosen = replace(self.parameters, n_estimators=n_trials, learning_rate=rate, max_depth=depth, max_leaves=0)
        return replace(self, parameters=chosen)

    def grow(
        self, table: BinnedTable, labels: Values, weights: Values, alternates: Alternates | None = None
    ) -> tuple[list[Tree], Values]:
        """Trees and base scores on these rows; no row is held out."""
        parameters = replace(self.parameters, early_stopping_rounds=None)
        base_scores = self.loss.initial_scores(labels, weights)
        trees, _ = boost_table(
            table,
            labels,
            weights,
            parameters,
            loss=self.loss,
            base_scores=base_scores,
            constraints=self.constraints,
            alternates=alternates,
            seed=self.seed,
        )
        return trees, base_scores


def fill(
    binned: Iterable[BinnedColumn | None],
    sources: Mapping[int, RankSource],
    labels: Values,
    weights: Values,
    is_trained: Mask,
    recipe: Recipe,
    known: KnownRows | None = None,
    *,
    n_columns: int,
    choice: NoiseChoice | None = None,
) -> Filled:
    """Bin a table, its noised columns filled in as is likely to serve best.

    Trees on draws are compared with trees without the noised columns on rows held out of the training rows, by draws
    made without the label. Where they are worse, trees on the released ranks are compared with those in turn.

    Parameters
    ----------
    binned : iterable of BinnedColumn or None
        None where a column is noised.
    sources : mapping of int to RankSource
        The noised columns, by number.
    labels, weights : ndarray of float64, shape (n_rows,)
    is_trained : ndarray of bool, shape (n_rows,)
        The other rows are drawn without their labels.
    recipe : Recipe
    known : KnownRows, optional
        Enough of them are compared on in place of a share of the training rows.
    n_columns : int
        Each is let go of before the next one is asked for.
    choice : NoiseChoice, optional
        Of a model that these trees continue, in place of what the comparison finds.
    """
    nothing, max_bin = BinnedColumn(np.zeros(len(labels), np.uint8), np.empty(0)), recipe.parameters.max_bin
    table = BinnedTable.of((column or nothing for column in binned), n_columns=n_columns)
    if not sources:
        return Filled(None, table)
    noised = Noised(table, tuple(sources), tuple(sources.values()))
    rng = np.random.default_rng(recipe.seed)
    trained = np.flatnonzero(is_trained)
    some = np.sort(rng.permutation(trained)[:COMPARED_ROWS])
    known = known if known is not None and len(known.labels) >= LEAST_KNOWN else None
    # The comparison draws from `rng` whatever comes of it.
    found = _compare(noised.of_rows(some), labels[some], weights[some], recipe, known, max_bin=max_bin, rng=rng)
    choice = choice or found
    if choice is NoiseChoice.ALONE:
        return Filled(choice, noised.table)
    if choice is NoiseChoice.PLAIN:
        return Filled(choice, noised.filled(plain_bins(noised, max_bin)))
    imputation, evidence = _impute(noised, labels, trained, recipe, rng=rng)
    seed = int(rng.integers(2**63))
    states = imputation.draw(evidence, N_DRAWS, seed=seed)
    held_out = np.flatnonzero(~is_trained)
    if len(held_out):
        hidden = imputation.of_rows(held_out).draw(evidence.rows(held_out), N_DRAWS, with_label=False, seed=seed + 1)
        states[:, :, held_out] = hidden
    binned, alternates = versions_of(noised, imputation.sources, states, choice, max_bin=min(max_bin, MOST_BINS))
    return Filled(choice, noised.filled(binned), alternates)


def _compare(
    noised: Noised,
    labels: Values,
    weights: Values,
    recipe: Recipe,
    known: KnownRows | None,
    *,
    max_bin: int,
    rng: np.random.Generator,
) -> NoiseChoice:
    """Grow the candidates on the rows, and score them on known ones; or grow on a part, and score on the others."""
    order = rng.permutation(len(labels)) if known is None else np.arange(len(labels))
    n_held_out = round(HELD_OUT_SHARE * len(labels)) if known is None else 0
    held_out, kept = np.sort(order[:n_held_out]), np.sort(order[n_held_out:])
    imputation, evidence = _impute(noised, labels, kept, recipe, rng=rng)
    drawn, outside = np.empty((0, len(noised.columns), 0), np.uint8), noised.of_rows(held_out)
    if known is None:
        seed = int(rng.integers(2**63))
        drawn = imputation.of_rows(held_out).draw(evidence.rows(held_out), N_SCORED, with_label=False, seed=seed)
    states = imputation.of_rows(kept).draw(evidence.rows(kept), N_DRAWS, seed=int(rng.integers(2**63)))
    inside = noised.of_rows(kept)
    binned, alternates = versions_of(inside, imputation.sources, states, None, max_bin=min(max_bin, MOST_BINS))
    table, rows = inside.filled(binned), outside.table if known is None else known.binned(noised.table)
    seen = np.empty((len(drawn) + 1, len(noised.columns), rows.n_rows), np.uint8)
    for place, source, member in places(imputation.sources):
        column, cuts = outside.columns[place], binned[place].cuts
        if known is None:
            seen[:-1, place] = bins_of_ranks(source.rank_of_state[member], column.n_ranks, cuts)[
                drawn[:, source.number]
            ]
            seen[-1, place] = bins_of_ranks(column.ranks[:], column.n_ranks, cuts)
        else:
            seen[0, place] = bins_between(known.columns[noised.numbers[place]], cuts)
    versions = Alternates(alternates.columns, seen, tuple(range(len(seen))))
    truth = labels[held_out] if known is None else known.labels
    targets = (truth[:, None] == np.arange(recipe.n_classes)).astype(float) if recipe.n_classes > 2 else truth[:, None]
    brief, weight = recipe.brief(), weights[held_out]
    if known is not None:
        weight = recipe.parameters.weighted(truth, np.ones(len(truth)), recipe.loss)

    def predicted(choice: NoiseChoice) -> Values:
        """Predictions of the held-out rows for each version of them, shape ``(n_versions, n_rows, n_outputs)``."""
        turns = replace(alternates, turns=choice.turns(N_DRAWS))
        trees, base_scores = brief.grow(table, labels[kept], weights[kept], turns)
        scores = _raw_scores(replace(table, bins=rows.bins), trees, base_scores, versions)
        return np.stack([recipe.loss.predictions(one.T) for one in scores]).reshape(len(seen), rows.n_rows, -1)

    usual = NoiseChoice.CORRECTED if _open_share(states) > OPEN_SHARE else NoiseChoice.CORRECTED_AND_PLAIN
    corrected, alone = (predicted(choice) for choice in (usual, NoiseChoice.ALONE))
    measure = squared_errors if known is None else _exact_errors
    errors = [weight * measure(targets, one[: max(len(drawn), 1)]) for one in (corrected, alone)]
    if not is_worse(*errors, z=AHEAD):
        return usual
    # Whether released codes help to predict from released codes needs no model of what lies behind them.
    plain, alone = (weight * _exact_errors(targets, one[-1:]) for one in (predicted(NoiseChoice.PLAIN), alone))
    return NoiseChoice.PLAIN if is_worse(alone, plain, z=0) else NoiseChoice.ALONE


def _exact_errors(targets: Values, predictions: Values) -> Values:
    """Squared error of the predictions of a single version, summed over outputs."""
    return ((targets - predictions[0]) ** 2).sum(axis=1)


def _open_share(states: NDArray[np.uint8]) -> float:
    """Mean share of the variance of a source's states that lies between the draws of the same row."""
    shares = [one.var(axis=0, ddof=1).mean() / max(one.var(), 1e-12) for one in np.swapaxes(states, 0, 1)]
    return float(np.mean(shares))


def _impute(
    noised: Noised, labels: Values, rows: NDArray[np.int64], recipe: Recipe, *, rng: np.random.Generator
) -> tuple[Imputation, Evidence]:
    """Fit what lies behind the noised columns on some of the rows."""
    own = _own_scores(noised, labels, rows, recipe, rng=rng)
    evidence = Evidence.of(labels, own, n_classes=recipe.n_classes)
    with threads_for(len(rows) * len(noised.columns) * N_CLASSES):
        return Imputation.fit(sources_of(noised.columns), evidence, rows, rng=rng), evidence


def _own_scores(
    noised: Noised, labels: Values, rows: NDArray[np.int64], recipe: Recipe, *, rng: np.random.Generator
) -> Values:
    """What the active party's own columns say of each row's label, by trees that have not seen it."""
    n_rows, loss = len(labels), recipe.loss
    if (noised.table.axes.sizes[np.delete(np.arange(noised.table.axes.n_columns), noised.numbers)] < 3).all():
        return np.empty((n_rows, 0))
    fold = rng.integers(_FOLDS, size=n_rows)
    found = np.empty((n_rows, loss.n_outputs))
    recipe = replace(recipe, parameters=_OWN_TREES)
    for k in range(_FOLDS):
        others = rows[fold[rows] != k]
        others = np.sort(rng.permutation(others)[:FITTED_ROWS])
        trees, base_scores = recipe.grow(noised.table.of_rows(others), labels[others], np.ones(len(others)))
        here = np.flatnonzero(fold == k)
        found[here] = _raw_scores(noised.table.of_rows(here), trees, base_scores, _nothing(len(here)))[0].T
    return found[:, 1:] if loss == Softmax(2) else found


def _raw_scores(table: BinnedTable, trees: Sequence[Tree], base_scores: Values, alternates: Alternates) -> list[Values]:
    """Scores ``(n_outputs, n_rows)`` of trees in the bins of a table, for each version of its rows."""
    followed = FollowedVersions(table, alternates, np.repeat(base_scores[:, None], table.n_rows, axis=1))
    for t, tree in enumerate(trees):
        followed.add(tree, t % len(base_scores))
    return [followed.up_to_date(version).astype(np.float64) for version in range(len(alternates))]


def _nothing(n_rows: int) -> Alternates:
    return Alternates(np.empty(0, np.int64), np.empty((1, 0, n_rows), np.uint8), (0,))
