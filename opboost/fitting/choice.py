"""Choice of the versions of noised columns that trees are grown on, by scores of candidates on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from operator import itemgetter

import numpy as np

from opboost.arrays import Values
from opboost.fitting.noised_table import Blend, NoiseChoice, NoisedRows
from opboost.fitting.recipe import Recipe
from opboost.fitting.trials import DrawCodes, Trial, trials_of
from opboost.trees.validation import KnownRows

# Shares of the columns' variance that draws leave open: up to the second one, trees look at draws and at the released
# codes by turns; above the first one, they may look at draws alone (`docs/architecture/noise-trials.md`).
OPEN_SHARES = (0.1, 0.25)

# Up to which released codes alone are a candidate like others. Where draws leave more open, held-out rows show too
# little of what draws bring back: trees on released codes that go on have to win so many times more, and this part of
# the own columns' error besides, others are looked at where draws add nothing (`docs/architecture/noise-trials.md`).
_OPEN_FOR_PLAIN, _PLAIN_FACTOR, _PLAIN_LEAD = 1 / 3, 1.1, 0.003

# Shares of the candidates in the scores, what is expected of them before, and how surely (a deviation)
# (`docs/architecture/noise-trials.md`).
SHARES = np.arange(21) / 10
_EXPECTED_SHARE, _DEVIATION = 1.0, 0.25

# Held-out rows see little of effects that are narrower than the noise, but all harm: unless trees on draws are behind
# those on the own columns by so much, relatively, no more rows than these speak for a share below what is expected.
_HARM, _COUNTED_ROWS = 0.0125, 300

# Share below which the passive columns are left out.
LEAST_BLEND = 0.15

# What trees of another depth on the own columns may have of the first ones' error: deeper ones fit more chance, on
# which others would go on (`docs/architecture/noise-trials.md`).
_OTHER_DEPTH = 0.98


def choose(
    noised: NoisedRows,
    recipe: Recipe,
    known: KnownRows | None,
    draw_codes: DrawCodes,
    *,
    may_continue_own: bool = True,
    rng: np.random.Generator,
) -> Blend:
    """Compare candidates on known rows, or on each part of the rows, grown on the others.

    Parameters
    ----------
    noised : NoisedRows
    recipe : Recipe
    known : KnownRows, optional
    draw_codes : callable
        Draws exact codes of rows to grow on and of rows to score on, given both. Draws of the former must not depend on
        labels of the latter: trees on draws would seem better than they are.
    may_continue_own : bool
        Whether trees that continue from the scores of trees on the own columns are candidates.
    rng : numpy Generator
        For the parts.
    """
    trials, share_open = trials_of(noised, recipe, known, draw_codes, rng=rng)
    depths = recipe.own_depths if noised.has_own else ()
    starts = (False, True) if may_continue_own and noised.has_own else (False,)
    # Trees that do not continue from own trees are the same whatever the depth of these.
    scores_alone = cache(lambda choice: [trial.scores(choice) for trial in trials])
    compared = [
        _best_candidate(depth_trials, own_scores, scores_alone, share_open, starts)
        for depth_trials, own_scores in _by_depth(trials, depths)
    ]
    return min(compared, key=itemgetter(0))[1]


def _by_depth(trials: list[Trial], depths: Sequence[int]) -> Iterator[tuple[list[Trial], list[Values]]]:
    """The trials, with scores of trees on the own columns: of the first depth, and of the best other one if it wins."""
    errors, tried = [], []
    for depth in depths or (None,):
        depth_trials = [replace(trial, own_depth=depth) for trial in trials]
        scores = [trial.scores(NoiseChoice.ALONE) for trial in depth_trials]
        row_errors = [trial.errors(own) for trial, own in zip(depth_trials, scores, strict=True)]
        errors.append(np.concatenate(row_errors).mean())
        tried.append((depth_trials, scores))
    best = int(np.argmin(errors))
    yield tried[0]
    if errors[best] < _OTHER_DEPTH * errors[0]:
        yield tried[best]


def _best_candidate(
    trials: Sequence[Trial],
    own: Sequence[Values],
    scores_alone: Callable[[NoiseChoice], list[Values]],
    share_open: float,
    starts: Sequence[bool],
) -> tuple[float, Blend]:
    """Error and blend of the candidate that gains most beside trees on the own columns.

    `own` are the scores of those trees, trial by trial; `scores_alone` gives scores of trees that start from the base
    scores instead of continuing from them.
    """
    recipe, own_depth = trials[0].recipe, trials[0].own_depth
    shares = SHARES[SHARES <= 1] if recipe.constraints.monotone.any() else SHARES
    margins = [trial.margins() for trial in trials] if any(starts) else []
    n_scored = sum(len(trial.scored.targets) for trial in trials)

    @cache
    def best_blend(choice: NoiseChoice, continues_own: bool) -> tuple[float, float, Blend]:
        """The part of the own columns' error that a candidate removes, the error that is left, and its blend."""
        if continues_own:
            steps = [
                trial.scores(choice, start) - trial.base_scores for trial, start in zip(trials, margins, strict=True)
            ]
        else:
            steps = [scores - own_scores for own_scores, scores in zip(own, scores_alone(choice), strict=True)]
        errors = np.empty(len(shares))
        for s, share in enumerate(shares):
            parts = zip(trials, own, steps, strict=True)
            errors[s] = np.concatenate([trial.errors(a + share * step) for trial, a, step in parts]).mean()
        # Released codes bring no narrow effects back, so held-out rows see what trees on them are worth.
        best = _most_likely(shares, errors, n_scored, n_scored if choice is NoiseChoice.PLAIN else _COUNTED_ROWS)
        gain = 1.0 - float(errors[best] / max(errors[0], 1e-12))
        if choice is NoiseChoice.PLAIN and share_open > _OPEN_FOR_PLAIN:
            gain, best = gain / _PLAIN_FACTOR - _PLAIN_LEAD, best if gain > 0 else 0
        error = float(errors[best if shares[best] >= LEAST_BLEND else 0])
        return gain, error, Blend(choice, float(shares[best]), continues_own, own_depth)

    # What would be left out wins nothing, and held-out rows may see a little harm of what serves better than that.
    candidates = [best_blend(choice, continues_own) for choice, continues_own in _candidates(share_open, starts)]
    candidates = [candidate for candidate in candidates if candidate[2].share >= LEAST_BLEND]
    _, error, blend = max(
        candidates or [best_blend(NoiseChoice.PLAIN, continues_own) for continues_own in starts], key=itemgetter(0)
    )
    return error, blend if blend.share >= LEAST_BLEND else Blend(NoiseChoice.ALONE, own_depth=own_depth)


def _candidates(share_open: float, starts: Sequence[bool]) -> Iterator[tuple[NoiseChoice, bool]]:
    """Candidates: versions that trees are grown on, and whether they continue from the own trees' scores."""
    usual = by_turns(share_open)
    for continues_own in starts:
        yield usual, continues_own
        if continues_own or share_open <= _OPEN_FOR_PLAIN:
            yield NoiseChoice.PLAIN, continues_own
    if usual is NoiseChoice.CORRECTED_AND_PLAIN and share_open > OPEN_SHARES[0]:
        yield NoiseChoice.CORRECTED, False


def by_turns(share_open: float) -> NoiseChoice:
    """Versions for trees on draws: with released codes by turns unless draws leave much of the variance open."""
    return NoiseChoice.CORRECTED_AND_PLAIN if share_open <= OPEN_SHARES[1] else NoiseChoice.CORRECTED


def _most_likely(shares: Values, errors: Values, n_rows: int, counted_rows: int = _COUNTED_ROWS) -> int:
    """Index of the most likely share, given the mean error at each and a normal prior; `shares[0]` is 0."""

    def best(counted: int) -> int:
        misfits = counted * errors / max(errors.min(), 1e-12) + ((shares - _EXPECTED_SHARE) / _DEVIATION) ** 2
        return int(misfits.argmin())

    if errors[np.abs(shares - 1).argmin()] > (1 + _HARM) * errors[0]:
        return best(n_rows)
    return max(best(n_rows), best(min(n_rows, counted_rows)))
