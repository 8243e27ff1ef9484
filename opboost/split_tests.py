"""Inputs of trained trees from the columns' owners, split tests or cells: listed, bound into an ensemble, unpacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask, Ranks, Values
from opboost.columns import Column, OwnColumn, RankColumn
from opboost.errors import DataError, ParameterError
from opboost.fitting.noised_table import NoiseChoice
from opboost.trees.tree import PRESENT, Ensemble, Feature, Tree
from opboost.vertical import TrainedTrees


@dataclass(frozen=True, slots=True)
class ListedTests:
    """Split tests to be resolved by one owner: its column, the rank, and the answer for missing; ``(n_tests,)``."""

    columns: NDArray[np.uint32]
    ranks: Ranks
    missing_left: Mask


def list_tests(trained: TrainedTrees) -> dict[str, ListedTests]:
    """Every distinct test that the trees make on each owner's columns, by owner, in ascending order.

    Columns with an agreed grid have no tests: their owner answers with cells, whatever the trees are.
    """
    tests: dict[str, set[tuple[int, int, bool]]] = {
        column.owner: set() for column in trained.columns if isinstance(column, RankColumn)
    }
    for tree in trained.trees:
        for node in np.flatnonzero(~tree.is_leaf):
            column = trained.columns[tree.columns[node]]
            if isinstance(column, RankColumn) and column.cuts is None:
                tests[column.owner].add(_test(trained, tree, int(node)))
    return {owner: _as_arrays(sorted(keys)) for owner, keys in tests.items()}


def bind(trained: TrainedTrees, tests: Mapping[str, ListedTests]) -> Ensemble:
    """Bind trained trees into an ensemble that predicts from own values and owners' answers to `tests`, or cells."""
    features: list[Feature] = []
    own_feature: dict[int, int] = {}
    for c, column in enumerate(trained.columns):
        if isinstance(column, OwnColumn):
            own_feature[c] = len(features)
            features.append(Feature(column.name))
        elif column.cuts is not None:
            own_feature[c] = len(features)
            features.append(Feature(column.name, column.owner, n_cells=len(column.cuts) + 1))
    names = {(c.owner, c.index): c.name for c in trained.columns if isinstance(c, RankColumn)}
    test_feature: dict[tuple[str, int, int, bool], int] = {}
    for owner, listed in tests.items():
        keys = zip(listed.columns.tolist(), listed.ranks.tolist(), listed.missing_left.tolist(), strict=True)
        for c, rank, missing_left in keys:
            test_feature[owner, c, rank, missing_left] = len(features)
            features.append(Feature(names[owner, c], owner, rank, missing_left))
    trees = tuple(_bind_tree(trained, tree, own_feature, test_feature) for tree in trained.trees)
    offsets = tuple(own_feature[len(trained.columns) - len(trained.margins) + k] for k in range(len(trained.margins)))
    return Ensemble(trees, trained.base_scores, trained.loss, tuple(features), offsets)


@dataclass(frozen=True, slots=True, eq=False)
class EarlierModel:
    """Finished model that training continues from, on the columns that it was trained on or others of their names.

    Attributes
    ----------
    ensemble : Ensemble
        Its inputs from passive parties refer to the release that it was trained on.
    choice : NoiseChoice or None
    n_own_trees : int
        As of `TrainedTrees`.
    """

    ensemble: Ensemble
    choice: NoiseChoice | None = None
    n_own_trees: int = 0

    @property
    def base_scores(self) -> Values:
        return self.ensemble.base_scores

    @property
    def n_rounds(self) -> int:
        """Rounds of boosting."""
        return max(len(self.ensemble.trees) - self.n_own_trees, 0) // self.ensemble.loss.n_outputs

    def cuts(self, column: Column) -> Values:
        """Values behind which the trees cut one of the active party's columns, or categories that they send left."""
        features = self.ensemble.features
        numbers = [i for i, feature in enumerate(features) if feature.owner is None and feature.name == column.name]
        cuts: set[float] = set()
        for tree in self.ensemble.trees:
            for node in np.flatnonzero(np.isin(tree.columns, numbers)).tolist():
                cuts.update(tree.left_categories.get(node, (float(tree.thresholds[node]),)))
        return np.array(sorted(cuts - {PRESENT}), np.float64)

    def in_bins(self, columns: Sequence[Column], cuts: Sequence[Values]) -> list[Tree]:
        """The trees, for columns that were cut behind these values; the inverse of `bind`.

        Raises
        ------
        ParameterError
            If the trees need a column or a cut that there is not.
        """
        numbers = {(getattr(column, "owner", None), column.name): c for c, column in enumerate(columns)}
        return [self._in_bins(tree.in_levels(), columns, numbers, cuts) for tree in self.ensemble.trees]

    def _in_bins(
        self,
        tree: Tree,
        columns: Sequence[Column],
        numbers: Mapping[tuple[str | None, str], int],
        cuts: Sequence[Values],
    ) -> Tree:
        places, thresholds, missing_left = tree.columns.copy(), tree.thresholds.copy(), tree.missing_left.copy()
        categories = {}
        for node in np.flatnonzero(~tree.is_leaf).tolist():
            feature = self.ensemble.features[tree.columns[node]]
            c = numbers.get((feature.owner, feature.name), -1)
            if c < 0:
                raise _no_such_cut(feature.name)
            column, places[node] = columns[c], c
            cut_value, is_last = thresholds[node], thresholds[node] == PRESENT
            if (node in tree.left_categories) != (isinstance(column, OwnColumn) and column.is_categorical):
                raise _no_such_cut(feature.name)
            if node in tree.left_categories:
                bins = np.searchsorted(cuts[c], tree.left_categories[node])
                categories[node], thresholds[node] = tuple(bins.tolist()), 0.0
                continue
            if isinstance(column, RankColumn) and feature.rank is not None:
                cut_value, missing_left[node] = feature.rank, feature.missing_left
                is_last = feature.rank == column.n_ranks - 1
            elif isinstance(column, RankColumn) and column.cuts is not None and not is_last:
                if not 0 <= cut_value < len(column.cuts):
                    raise _no_such_cut(feature.name)
                cut_value = column.cuts[int(cut_value)]
            cut = len(cuts[c]) if is_last else int(np.searchsorted(cuts[c], cut_value))
            if not is_last and (cut == len(cuts[c]) or cuts[c][cut] != cut_value):
                raise _no_such_cut(feature.name)
            thresholds[node] = cut
        return replace(
            tree, columns=places, thresholds=thresholds, missing_left=missing_left, left_categories=categories
        )


def _no_such_cut(name: str) -> ParameterError:
    return ParameterError(
        f"the model to continue cuts column {name!r} where these records have no cut: continue it on the columns, "
        "`max_bin` and seed that it was trained with. Nothing was trained"
    )


def n_answer_bits(ensemble: Ensemble, owner: str) -> int:
    """Bits of an owner's answer about a record: one per test, or what the number of a cell takes."""
    return int(ensemble.answer_widths[owner].sum()) if owner in ensemble.answer_widths else 0


def unpacked(ensemble: Ensemble, owner: str, packed: NDArray[np.uint8]) -> Mask | Values:
    """An owner's packed answers ``(n_rows, ceil(n_bits / 8))`` as `feature_matrix` takes them.

    These are answers to tests, or numbers of cells, NaN where the cell is missing.
    """
    n_cells = ensemble.cell_counts.get(owner, ())
    if None in n_cells or not n_cells:
        return np.unpackbits(packed, axis=1, count=n_answer_bits(ensemble, owner)).view(np.bool_)
    widths = ensemble.answer_widths[owner]
    # A number has eight bits at most, so it lies within two bytes.
    byte, bit = np.divmod(np.cumsum(widths) - widths, 8)
    padded = np.zeros((len(packed), packed.shape[1] + 1), np.uint16)
    padded[:, :-1] = packed
    words = padded[:, :-1] << 8 | padded[:, 1:]
    cells = words[:, byte] >> (16 - bit - widths).astype(np.uint16) & ((1 << widths) - 1).astype(np.uint16)
    return np.where(cells < np.array(n_cells, np.uint16), cells, np.nan)


def feature_matrix(
    ensemble: Ensemble, own: Mapping[str, Values], answers: Mapping[str, Mask | Values], n_rows: int
) -> Values:
    """Feature matrix of an ensemble, from own columns by name and the owners' answers ``(n_rows, n_inputs)``.

    Raises
    ------
    DataError
        If a column or an owner's answers are absent. There is never a silent default score.
    """
    matrix = np.empty((n_rows, len(ensemble.features)))
    for owner, inputs in ensemble.inputs.items():
        if owner is None:
            for i in inputs.tolist():
                name = ensemble.features[i].name
                if name not in own:
                    raise DataError(f"the model needs column {name!r}, which is absent. No score was computed")
                matrix[:, i] = own[name]
        elif owner not in answers or answers[owner].shape != (n_rows, len(inputs)):
            raise DataError(
                f"the model needs the answers of {owner!r} on {len(inputs)} inputs about {n_rows} records. "
                "No score was computed"
            )
        else:
            is_block = inputs[-1] - inputs[0] + 1 == len(inputs)
            answer = answers[owner]
            values = np.logical_not(answer) if answer.dtype == np.bool_ else answer
            matrix[:, slice(inputs[0], inputs[-1] + 1) if is_block else inputs] = values
    return matrix


def _test(trained: TrainedTrees, tree: Tree, node: int) -> tuple[int, int, bool]:
    """The test at a node as its owner knows it: column, rank, answer for missing."""
    c = int(tree.columns[node])
    column, cuts, cut = trained.columns[c], trained.cuts[c], int(tree.thresholds[node])
    assert isinstance(column, RankColumn)
    rank = int(cuts[cut]) if cut < len(cuts) else column.n_ranks - 1
    return column.index, rank, bool(tree.missing_left[node])


def _as_arrays(keys: list[tuple[int, int, bool]]) -> ListedTests:
    columns, ranks, missing_left = zip(*keys, strict=True) if keys else ((), (), ())
    return ListedTests(np.array(columns, np.uint32), np.array(ranks, np.uint32), np.array(missing_left, np.bool_))


def _bind_tree(
    trained: TrainedTrees, tree: Tree, own_feature: dict[int, int], test_feature: dict[tuple[str, int, int, bool], int]
) -> Tree:
    columns, thresholds, missing_left = tree.columns.copy(), tree.thresholds.copy(), tree.missing_left.copy()
    categories: dict[int, tuple[int, ...]] = {}
    for node in np.flatnonzero(~tree.is_leaf).tolist():
        c, cut = int(tree.columns[node]), int(tree.thresholds[node])
        column, cuts = trained.columns[c], trained.cuts[c]
        if isinstance(column, RankColumn) and column.cuts is not None:
            _, rank, _ = _test(trained, tree, node)
            cell = int(np.searchsorted(column.cuts, rank))
            columns[node], thresholds[node] = own_feature[c], cell if cell < len(column.cuts) else PRESENT
        elif isinstance(column, RankColumn):
            columns[node] = test_feature[column.owner, *_test(trained, tree, node)]
            thresholds[node] = 0.5
            missing_left[node] = False
        elif column.is_categorical:
            columns[node], thresholds[node] = own_feature[c], 0.0
            categories[node] = tuple(int(cuts[b]) for b in tree.left_categories[node])
        else:
            columns[node] = own_feature[c]
            thresholds[node] = cuts[cut] if cut < len(cuts) else PRESENT
    return replace(tree, columns=columns, thresholds=thresholds, missing_left=missing_left, left_categories=categories)
