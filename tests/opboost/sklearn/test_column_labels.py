"""Data frames whose columns are labelled with numbers: never taken for positions, and the same in later tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest

from opboost import (
    DPBoostClassifier,
    DPBoostingClassifier,
    FederatedGBDTClassifier,
    InPrivateClassifier,
    OpBoostClassifier,
    OpBoostRegressor,
    SGBDTClassifier,
)
from opboost.errors import DataError, ParameterError

pytestmark = pytest.mark.usefixtures("one_thread")

ROWS = np.random.default_rng(0).uniform(0, 1, (60, 3))
LABELS = (ROWS[:, 0] > 0.5).astype(int)
SMALL: dict[str, Any] = {"n_estimators": 3, "max_depth": 2, "random_state": 0}
OF_ROWS = (SGBDTClassifier, DPBoostClassifier, DPBoostingClassifier, InPrivateClassifier, FederatedGBDTClassifier)
# Every parameter that names columns, for the columns labelled 1 and 2.
OF_COLUMNS: dict[str, dict[str, Any]] = {
    "bounds": {"bounds": {1: (0, 1)}},
    "categories": {"bounds": {1: ["a", "b"]}},
    "passive_columns": {"passive_columns": [1], "bounds": (0, 1)},
    "budgets": {"bounds": (0, 1), "budgets": {1: {"epsilon": 0.1}}},
    "monotone_constraints": {"monotone_constraints": {1: 1}},
    "interaction_constraints": {"interaction_constraints": [[1, 2]]},
    "categorical_features": {"categorical_features": [1]},
}


def labelled(*labels: Any) -> pd.DataFrame:
    return pd.DataFrame(ROWS, columns=list(labels))


@pytest.mark.parametrize("labels", [(1, 2, 3), (2, 0, 1), (1.0, 2.0, 3.0)])
@pytest.mark.parametrize("parameter", OF_COLUMNS)
def test_a_number_that_may_be_a_label_names_no_column(parameter: str, labels: tuple[Any, ...]) -> None:
    """The column at that position was released, and the one with that label was left in clear."""
    model = OpBoostClassifier(**OF_COLUMNS[parameter], **SMALL)
    with pytest.raises(ParameterError, match=r"^column 1 may be a position or a label, .* Nothing was released"):
        model.fit(labelled(*labels), LABELS)
    assert not hasattr(model, "model_")


@pytest.mark.parametrize("kind", OF_ROWS)
def test_estimators_of_rows_take_no_label_for_a_position(kind: Any) -> None:
    """The bounds of one column became those of another."""
    bounds = {0: (0, 1), 1: (0, 1), 2: (0, 1)}
    with pytest.raises(ParameterError, match=r"^column 0 may be a position or a label"):
        kind(epsilon=10.0, bounds=bounds).fit(labelled(2, 0, 1), LABELS)
    assert kind(bounds=bounds, epsilon=np.inf).fit(labelled(0, 1, 2), LABELS).model_


@pytest.mark.parametrize("kind", OF_ROWS)
def test_columns_of_a_kind_are_given_by_no_label_either(kind: Any) -> None:
    of_kind = {"categorical_features": [1]}
    if kind is FederatedGBDTClassifier:
        of_kind = {"split_candidates": "log", "mirrored": [1]}
    with pytest.raises(ParameterError, match=r"^column 1 may be a position or a label"):
        kind(**of_kind).fit(labelled(1, 2, 3), LABELS)


def test_texts_that_say_other_numbers_are_no_positions_either() -> None:
    """A table of Arrow has texts where the data frame that it was made of had numbers."""
    frame = labelled(1, 2, 3)
    for table in (frame.set_axis(["1", "2", "3"], axis=1), pyarrow.Table.from_pandas(frame)):
        with pytest.raises(ParameterError, match=r"^column 1 may be a position or a label"):
            OpBoostClassifier(bounds={1: (0, 1)}, **SMALL).fit(table, LABELS)
        with pytest.raises(ParameterError, match=r"^column 1 may be a position or a label"):
            DPBoostingClassifier(epsilon=10.0, bounds={1: (0, 1)}).fit(table, LABELS)


def test_columns_with_texts_for_labels_are_named_by_these() -> None:
    frame = labelled(1, 2, 3)
    frame.columns = frame.columns.map(str)
    (released,) = OpBoostClassifier(bounds={"1": (0, 1)}, **SMALL).fit(frame, LABELS)._mechanisms
    assert released.schema.name == "1"


def test_one_value_for_each_column_goes_by_their_order_whatever_their_labels_are() -> None:
    model = OpBoostClassifier(monotone_constraints=[1, 0, -1], bounds=([0, 0, 0], 1), **SMALL)
    assert [one.schema.name for one in model.fit(labelled(2, 0, 1), LABELS)._mechanisms] == ["x0", "x1", "x2"]
    grid = DPBoostingClassifier(epsilon=10.0, bounds=([0, -1, -2], 1)).fit(labelled(2, 0, 1), LABELS)._task.grid
    assert grid.bounds == [(0, 1), (-1, 1), (-2, 1)]


@pytest.mark.parametrize("labels", [(0, 1, 2), (1, 2, 3), (("a", 0), ("a", 1), ("b", 0))])
@pytest.mark.parametrize("kind", [*OF_ROWS, OpBoostClassifier])
def test_columns_in_another_order_are_refused_as_they_are_with_names(kind: Any, labels: tuple[Any, ...]) -> None:
    """Scores were chance, and nothing was said."""
    frame = labelled(*labels)
    model = kind(random_state=0).fit(frame, LABELS)
    expected = model.predict(ROWS)
    np.testing.assert_array_equal(model.predict(frame), expected)
    other = frame.iloc[:, [0, 2, 1]]
    with pytest.raises(DataError, match=r"column at position 1 is labelled .* give the same columns in the same order"):
        model.predict(other)
    with pytest.raises(ValueError, match="features"):
        model.predict(frame.iloc[:, :2])


def test_labels_that_are_categories_are_the_same_whatever_others_there_are() -> None:
    frame = labelled(5, 6, 7)
    frame.columns = pd.CategoricalIndex([5, 6, 7], categories=[7, 6, 5, 8])
    model = OpBoostClassifier(random_state=0).fit(frame, LABELS)
    np.testing.assert_array_equal(model.predict(labelled(5, 6, 7)), model.predict(frame))


def test_rows_that_are_scored_or_arrive_later_have_their_columns_in_order() -> None:
    frame, other = labelled(1, 2, 3), labelled(1, 3, 2)
    with pytest.raises(DataError, match="column at position 1 is labelled 3, and was 2"):
        OpBoostClassifier(**SMALL).fit(frame, LABELS, eval_set=[(other, LABELS)])
    model = OpBoostClassifier(**SMALL).fit(frame, LABELS)
    with pytest.raises(DataError, match="column at position 1 is labelled 3, and was 2"):
        OpBoostClassifier(continue_from=model, **SMALL).fit(other, LABELS)
    assert OpBoostClassifier(continue_from=model, **SMALL).fit(frame, LABELS).model_
    stream = DPBoostingClassifier(epsilon=10.0, bounds=(0, 1)).fit(frame, LABELS)
    with pytest.raises(DataError, match="column at position 1 is labelled 3, and was 2"):
        stream.partial_fit(other, LABELS)
    with pytest.raises(DataError, match="column at position 1 is labelled 3, and was 2"):
        stream.contributions(frame, background=other)


def test_a_new_fit_has_labels_of_its_own() -> None:
    for model in (OpBoostRegressor(**SMALL), DPBoostingClassifier(epsilon=10.0, bounds=(0, 1))):
        model.fit(labelled(1, 2, 3), LABELS).fit(labelled(3, 1, 2), LABELS)
        assert model.predict(labelled(3, 1, 2)).shape == LABELS.shape
