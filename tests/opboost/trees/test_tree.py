from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opboost.errors import DataError, ModelFileError, ParameterError
from opboost.trees.losses import Logistic, Loss, Softmax, SquaredError
from opboost.trees.tree import Ensemble, Feature, Tree
from tests.support.exported_models import rows, trained

_DTYPES = {"columns": np.int32, "lefts": np.int32, "rights": np.int32, "missing_left": np.bool_}


def _tree(**changes: Any) -> Tree:
    """Column 0 at most 1.5: leaf -1; else column 1 at most 0: leaf 2, else leaf 3; missing goes right, then left."""
    parts: dict[str, Any] = {
        "columns": [0, -1, 1, -1, -1],
        "thresholds": [1.5, 0, 0, 0, 0],
        "missing_left": [False, False, True, False, False],
        "lefts": [1, 0, 3, 0, 0],
        "rights": [2, 0, 4, 0, 0],
        "values": [0, -1, 0, 2, 3],
        "gains": [5, 0, 4, 0, 0],
        "covers": [9, 3, 6, 2, 4],
    }
    parts |= changes
    categories = parts.pop("left_categories", {})
    arrays = {name: np.array(part, _DTYPES.get(name, np.float64)) for name, part in parts.items()}
    return Tree(**arrays, left_categories=categories)


def _leaf(value: float) -> Tree:
    return _tree(
        columns=[-1], thresholds=[0], missing_left=[False], lefts=[0], rights=[0], values=[value], gains=[0], covers=[1]
    )


def _ensemble(trees: list[Tree], loss: Loss, n_features: int = 2) -> Ensemble:
    features = tuple(Feature(f"f{i}") for i in range(n_features))
    return Ensemble(tuple(trees), np.zeros(loss.n_outputs), loss, features)


ROWS = np.array([[1.5, 9], [np.nextafter(1.5, 2), 0], [2, 1], [np.nan, np.nan], [1, np.nan], [np.nan, 0.5]])
REACHED = [-1.0, 2.0, 3.0, 2.0, -1.0, 3.0]


def test_rows_walk_to_the_leaf_that_their_values_and_gaps_lead_to() -> None:
    assert _ensemble([_tree()], SquaredError()).scores(ROWS).tolist() == [[value] for value in REACHED]


def test_a_single_leaf_is_a_tree() -> None:
    assert _ensemble([_leaf(7.0)], SquaredError(), n_features=0).predict(np.empty((2, 0))).tolist() == [7.0, 7.0]


def test_scaling_multiplies_the_leaves_and_nothing_else() -> None:
    tree, scaled = _tree(), _tree().scaled(0.5)
    assert scaled.values.tolist() == [0, -0.5, 0, 1, 1.5]
    for name in ("columns", "thresholds", "missing_left", "lefts", "rights", "gains", "covers"):
        np.testing.assert_array_equal(getattr(scaled, name), getattr(tree, name))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lefts": [0, 0, 3, 0, 0]}, "after their parent"),
        ({"lefts": [1, 0, 2, 0, 0]}, "after their parent"),
        ({"rights": [2, 0, 0, 0, 0]}, "after their parent"),
        ({"rights": [2, 0, 1, 0, 0]}, "after their parent"),
        ({"rights": [2, 0, 5, 0, 0]}, "after their parent"),
        ({"lefts": [-1, 0, 3, 0, 0]}, "after their parent"),
        ({"rights": [2, 0, 3, 0, 0]}, "exactly one parent"),
        ({"columns": [0, -1, -1, -1, -1]}, "exactly one parent"),
        ({"lefts": [1, 0, 3, 0, 9]}, "a leaf has none"),
        ({"rights": [2, -1, 4, 0, 0]}, "a leaf has none"),
        ({"columns": [0, -1, -2, -1, -1], "lefts": [1, 0, 0, 0, 0], "rights": [2, 0, 0, 0, 0]}, "parent|-1 for a leaf"),
        ({"columns": [-2, -1, -1, -1, -1]}, "parent|-1 for a leaf"),
        ({"thresholds": [np.nan, 0, 0, 0, 0]}, "thresholds must be finite"),
        ({"thresholds": [np.inf, 0, 0, 0, 0]}, "thresholds must be finite"),
        ({"values": [0, np.inf, 0, 0, 0]}, "values must be finite"),
        ({"gains": [0, 0, np.nan, 0, 0]}, "gains must be finite"),
        ({"covers": [0, 0, -np.inf, 0, 0]}, "covers must be finite"),
        ({"values": [0, 1, 2]}, r"one length.*found \[3, 5\]"),
        (
            dict.fromkeys(
                ("columns", "thresholds", "missing_left", "lefts", "rights", "values", "gains", "covers"), ()
            ),
            r"at least 1; found \[0\]",
        ),
    ],
    ids=[
        "child is the root",
        "child is the node itself",
        "right child is the root",
        "cycle",
        "child beyond the end",
        "negative child",
        "two children in one",
        "orphans",
        "leaf with a child",
        "leaf with a negative child",
        "column below -1 inside",
        "column below -1",
        "NaN threshold",
        "infinite threshold",
        "infinite value",
        "NaN gain",
        "infinite cover",
        "short array",
        "no node",
    ],
)
def test_a_tree_that_no_walk_could_finish_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelFileError, match=words):
        _tree(**changes)


def test_a_leaf_whose_column_is_below_minus_one_is_refused() -> None:
    with pytest.raises(ModelFileError, match="its column is -1"):
        _tree(columns=[0, -1, 1, -2, -1])


@pytest.mark.parametrize("base_scores", [[], [0.0, 0.0], [np.nan], [np.inf], [[0.0]]], ids=str)
def test_an_ensemble_needs_a_finite_base_score_per_output(base_scores: list[Any]) -> None:
    with pytest.raises(ModelFileError, match="1 finite base scores"):
        Ensemble((), np.array(base_scores), SquaredError(), ())


def test_trees_that_do_not_fill_their_rounds_are_refused() -> None:
    with pytest.raises(ModelFileError, match="4 trees do not divide into rounds of 3"):
        _ensemble([_leaf(0.0)] * 4, Softmax(3))


def test_a_tree_on_a_column_without_a_feature_is_refused() -> None:
    with pytest.raises(ModelFileError, match="column 1, but there are 1 features"):
        _ensemble([_tree()], SquaredError(), n_features=1)


@pytest.mark.parametrize("shape", [(3, 1), (3, 3), (3,), (3, 2, 1)], ids=str)
def test_a_matrix_of_another_shape_is_not_scored(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="the model has 2 features; got an array of shape"):
        _ensemble([_tree()], SquaredError()).scores(np.zeros(shape))


@pytest.mark.parametrize(("loss", "expected"), [(SquaredError(), 0.0), (Logistic(), 0.5), (Softmax(4), [0.25] * 4)])
def test_an_ensemble_without_trees_predicts_its_base_scores(loss: Loss, expected: Any) -> None:
    np.testing.assert_array_equal(_ensemble([], loss).predict(np.zeros((2, 2))), [expected] * 2)


def test_the_trees_of_a_round_serve_one_output_each() -> None:
    ensemble = _ensemble([_leaf(1.0), _leaf(2.0), _leaf(10.0), _leaf(20.0)], Softmax(2))
    assert ensemble.n_rounds == 2
    assert ensemble.scores(np.zeros((1, 2))).tolist() == [[11.0, 22.0]]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_any_numeric_matrix_is_scored_alike(order: Any, dtype: type) -> None:
    matrix = np.array([[1, 5], [2, 0], [2, 1]], dtype=dtype, order=order)
    assert _ensemble([_tree()], SquaredError()).predict(matrix).tolist() == [-1.0, 2.0, 3.0]


def test_owners_are_listed_once_in_the_order_of_their_features() -> None:
    features = (Feature("own"), Feature("a", "late", 3), Feature("b", "early", 1), Feature("a", "late", 5, True))
    assert Ensemble((), np.zeros(1), SquaredError(), features).owners == ("late", "early")


def test_a_split_on_categories_sends_the_listed_ones_left_and_all_others_right() -> None:
    """Missing goes right at the root, left below; the threshold of a split on categories has no meaning."""
    tree = _tree(left_categories={0: (1, 3), 2: (0,)})
    rows = np.array([[1.0, 9], [3, 9], [0, 0], [2, 1], [4, 0], [7, -1], [1.5, 0.5], [np.nan, np.nan], [-1, 1e9]])
    reached = [-1.0, -1.0, 2.0, 3.0, 2.0, 3.0, 3.0, 2.0, 3.0]
    assert _ensemble([tree], SquaredError()).predict(rows).tolist() == reached
    assert tree.scaled(0.5).left_categories == tree.left_categories


@pytest.mark.parametrize(
    "categories",
    [{1: (0,)}, {5: (0,)}, {-1: (0,)}, {0: ()}, {0: (2, 1)}, {0: (1, 1)}, {0: (-1,)}, {0: (65536,)}],
    ids=str,
)
def test_categories_that_are_no_ascending_set_of_a_split_are_refused(categories: dict[int, tuple[int, ...]]) -> None:
    with pytest.raises(
        ModelFileError, match=r"ascending integers of at least 0 and under 65536, at a node that splits"
    ):
        _tree(left_categories=categories)


@pytest.mark.parametrize(("trees", "depth"), [([_leaf(1.0)], 0), ([_tree()], 2)])
def test_the_depth_is_the_longest_way_in_splits(trees: list[Tree], depth: int) -> None:
    assert trees[0].depth == depth


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("split", [2, 4, 0]),
        ("total_gain", [10, 8, 0]),
        ("gain", [5, 2, 0]),
        ("total_cover", [18, 16, 0]),
        ("cover", [9, 4, 0]),
    ],
)
def test_importances_are_sums_or_means_over_the_splits_on_each_feature(kind: Any, expected: list[float]) -> None:
    other = _tree(columns=[1, -1, 1, -1, -1], gains=[0, 0, 0, 0, 0], covers=[2, 1, 2, 1, 1])
    ensemble = _ensemble([_tree(), _tree(), _leaf(1.0), other], SquaredError(), n_features=3)
    assert ensemble.importance(kind).tolist() == expected


def test_a_model_without_splits_gives_no_feature_importance() -> None:
    for trees in ([], [_leaf(1.0)]):
        assert _ensemble(trees, SquaredError()).importance().tolist() == [0.0, 0.0]


def test_an_unknown_importance_is_refused() -> None:
    with pytest.raises(ParameterError, match="must be gain, total_gain, cover, total_cover or split; got 'weight'"):
        _ensemble([_tree()], SquaredError()).importance("weight")  # type: ignore[arg-type]


def test_rows_reach_the_leaves_whose_values_they_score() -> None:
    for loss in (Logistic(), Softmax(3)):
        ensemble, _ = trained(loss)
        matrix = rows(500, seed=5)
        leaves = ensemble.leaves(matrix).astype(np.int64)
        assert leaves.shape == (500, len(ensemble.trees))
        scores = np.tile(ensemble.base_scores, (500, 1))
        for i, tree in enumerate(ensemble.trees):
            tree = tree.in_levels()
            assert tree.is_leaf[leaves[:, i]].all()
            scores[:, i % loss.n_outputs] += tree.values[leaves[:, i]]
        np.testing.assert_allclose(scores, ensemble.scores(matrix), atol=1e-12)


def test_a_model_is_shown_in_notebooks_in_a_sentence_with_names_escaped() -> None:
    leaf = Ensemble((), np.zeros(1), SquaredError(), (Feature("x", owner="<b>"),))
    assert leaf._repr_html_() == (
        "<p>This model for reg:squarederror has 0 trees in 0 rounds on 1 inputs, of which columns of &lt;b&gt;.</p>"
    )
