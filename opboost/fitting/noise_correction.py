"""Train through the noise: draws of the exact codes in place of the released ones, where that is likely to help.

`opboost.denoise` says what the exact codes may have been, `opboost.trees` grows trees on several versions of a column.
All of it works on what was released already, so it costs no privacy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from opboost.arrays import Mask, Values
from opboost.denoise.sources import RankSource
from opboost.fitting.choice import MOST_BINS, N_DRAWS, choose
from opboost.fitting.imputing import impute
from opboost.fitting.noised_table import Filled, NoiseChoice, Noised, plain_bins, versions_of
from opboost.fitting.recipe import Recipe
from opboost.fitting.refinement import can_refine, refined
from opboost.trees.binning import BinnedColumn, BinnedTable
from opboost.trees.validation import KnownRows

# Rows below which no mixture is fitted and released codes are taken as they are.
LEAST_ROWS = 400

# Rows that candidates are compared on.
COMPARED_ROWS = 15_000

# Held-out rows, known exactly, from which on candidates are compared on them.
LEAST_KNOWN = 200


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
    nothing = BinnedColumn(np.zeros(len(labels), np.uint8), np.empty(0))
    table = BinnedTable.of((column or nothing for column in binned), n_columns=n_columns)
    if not sources:
        return Filled(None, table)
    noised = Noised(table, tuple(sources), tuple(sources.values()))
    comparing, rng = np.random.default_rng(recipe.seed).spawn(2)
    trained, max_bin = np.flatnonzero(is_trained), recipe.parameters.max_bin
    most = min(max_bin, MOST_BINS)
    if choice is None:
        some = np.sort(comparing.permutation(trained)[:COMPARED_ROWS])
        known = known if known is not None and len(known.labels) >= LEAST_KNOWN else None
        choice = choose(noised.of_rows(some), labels[some], weights[some], recipe, known, rng=comparing)
    if choice is NoiseChoice.ALONE:
        return Filled(choice, noised.table)
    if choice is NoiseChoice.PLAIN:
        return Filled(choice, noised.filled(plain_bins(noised, max_bin)))
    imputation, evidence = impute(noised, labels, trained, recipe, rng=rng)
    seed = int(rng.integers(2**63))
    states = imputation.draw(evidence, N_DRAWS, seed=seed)
    held_out = np.flatnonzero(~is_trained)
    if len(held_out):
        hidden = imputation.of_rows(held_out).draw(evidence.rows(held_out), N_DRAWS, with_label=False, seed=seed + 1)
        states[:, :, held_out] = hidden
    if can_refine(recipe, len(trained)):
        behind, of_rows = imputation.of_rows(trained), evidence.rows(trained)
        first = noised.of_rows(trained), labels[trained], weights[trained], behind, of_rows, states[:, :, trained]
        states[:, :, trained] = refined(*first, recipe, max_bin=most, rng=rng)
    binned, alternates = versions_of(noised, imputation.sources, states, choice, max_bin=most)
    return Filled(choice, noised.filled(binned), alternates)
