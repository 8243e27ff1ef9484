"""Scores of held-out records: which columns of ranks are one column."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opboost.arrays import HistogramAxes, Values
from opboost.columns import Column, OwnColumn, RankColumn
from opboost.desensitize import ColumnMechanism
from opboost.fitting.noised_table import NoiseChoice
from opboost.mechanism_settings import MechanismSettings
from opboost.privacy.guarantee import compose
from opboost.schema import ColumnSchema, Kind
from opboost.split_tests import EarlierModel, bind
from opboost.trees.boosting import BoostingParameters
from opboost.trees.complete import tree_of
from opboost.trees.losses import Logistic
from opboost.trees.tree import Ensemble
from opboost.trees.validation import History
from opboost.vertical import TrainedTrees
from parties.runs.earlier_model import Earlier
from parties.runs.joint_model import JointModel
from parties.vertical import held_out_score
from parties.vertical.held_out_score import HeldOutCells, columns_of_ranks, score_held_out
from parties.vertical.prediction_client import evaluated
from parties.vertical.training_job import ActiveJob, HeldOutRecords


def test_columns_of_ranks_go_with_the_column_that_they_come_from() -> None:
    numbers, town = ColumnSchema(name="a", lower=0, upper=9), {"kind": Kind.UNORDERED, "categories": ("x", "y")}
    schemas = (numbers, ColumnSchema(name="b", **town))  # type: ignore[arg-type]
    promise = compose(tuple(ColumnMechanism(one, MechanismSettings()).guarantee() for one in schemas), is_secure=True)
    assert columns_of_ranks(promise, ["c0", "c1", "c2"]) == {"a": ["c0"], "b": ["c1", "c2"]}
    # A guarantee that does not fit what was offered says nothing about it.
    for wrong in (promise, None):
        assert columns_of_ranks(wrong, ["c0", "c1"]) == {"c0": ("c0",), "c1": ("c1",)}


def of_columns(*columns: Column) -> Ensemble:
    return bind(TrainedTrees((), np.zeros(1), Logistic(), columns, (), History()), {})


def released(owner: str, index: int, cuts: list[int]) -> RankColumn:
    return RankColumn(owner, index, f"c{index}", np.zeros(1, np.uint8), 9, None, np.array(cuts, np.int64))


def test_records_that_choose_are_known_by_the_cells_of_the_owner_of_a_column() -> None:
    """Two parties' columns have the same names, and one of them is missing in a record."""
    columns = OwnColumn("age", np.zeros(1)), *(released(one, c, [2, 4 + c]) for one in ("post", "shop") for c in (0, 1))
    job: Any = SimpleNamespace(
        held_out=SimpleNamespace(own={"age": np.arange(4.0)}, labels=np.arange(4.0)), margins=(), metrics=()
    )
    # Three cells and a missing one take two bits each.
    post = np.array([0b00_01, 0b10_11, 0b01_10, 0b11_00], np.uint8)[:, None] << 4
    shop = np.array([0b10_10, 0b00_00, 0b11_01, 0b00_01], np.uint8)[:, None] << 4
    chooses = np.array([True, False, True, True])
    cells = HeldOutCells(of_columns(*columns), {"post": post, "shop": shop}, np.zeros(4, np.uint8), chooses)
    found = cells.known(job, columns)
    assert found is not None
    expected = [[0, 2, 3], [2, 4, np.nan], [5, 8, 2], [8, np.nan, 2], [8, 5, 5]]
    np.testing.assert_array_equal(np.array(found.columns), np.array(expected))
    assert found.labels.tolist() == [0, 2, 3]
    # The active party's own model needs no answers.
    alone = HeldOutCells(of_columns(*columns), {}, np.zeros(4, np.uint8), chooses).known(job, columns[:1])
    assert alone is not None
    assert [column.tolist() for column in alone.columns] == [[0, 2, 3]]


def test_wide_answers_are_unpacked_for_a_few_records_at_a_time() -> None:
    """As numbers, those about 20,000 records by 20,000 categories take 3 GB, four times over."""
    n_rows, sizes, columns = 600, list[int](), tuple(released("shop", c, [4]) for c in range(2000))

    def first(ensemble: Ensemble, matrix: Values) -> Values:
        sizes.append(len(matrix))
        return matrix[:, 0].copy()

    packed = np.zeros((n_rows, 500), np.uint8)
    packed[::2, 0] = 0b01 << 6
    found = evaluated(of_columns(*columns), {}, {"shop": packed}, n_rows, first)
    assert found.tolist() == [1.0, 0.0] * (n_rows // 2)
    assert sizes == [256, 256, 88]


def test_nobody_else_looks_after_the_peers_while_the_own_model_is_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever grows trees looks after them: two threads took frames of one message, and one waited for ever."""
    alive: list[bool] = []

    def alone(*_: object) -> Values:
        alive.append(any(one.name == "opboost heartbeats" for one in threading.enumerate()))
        return np.full(4, 0.5)

    monkeypatch.setattr(held_out_score, "_predict_alone", alone)
    own = OwnColumn("age", np.zeros(1))
    held_out = SimpleNamespace(own={"age": np.arange(4.0)}, ids=list("abcd"), labels=np.array([0.0, 1, 0, 1]))
    job: Any = SimpleNamespace(held_out=held_out, loss=Logistic(), most_records=None, seed=0, margins=(), metrics=())
    cells = HeldOutCells(of_columns(own), {}, np.zeros(4, np.uint8), np.zeros(4, np.bool_))
    score_held_out(
        job, JointModel(ensemble=of_columns(own)), [], lambda _: pytest.fail("is not asked"), {}, cells=cells
    )
    assert alive == [False]


@pytest.mark.parametrize(("choice", "rate"), [(NoiseChoice.CORRECTED, 10 / 1020), (None, 0.3)])
def test_the_own_model_of_a_continued_run_learns_as_slowly_as_so_many_rounds_need(
    trial: Any, choice: NoiseChoice | None, rate: float
) -> None:
    """1,000 calm rounds and 20 more, at the rate of 20, fit chance: A alone looked worse, and B's columns better."""
    leaf = tree_of([], np.zeros(1), HistogramAxes.from_bin_counts([2]))
    before = Ensemble((leaf,) * 1_200, np.zeros(1), Logistic(), ())
    job = trial.active(
        parameters=BoostingParameters(n_estimators=20),
        left_open=frozenset({"learning_rate"}),
        earlier=Earlier(EarlierModel(before, choice, 200), {}, {}),
        held_out=HeldOutRecords(trial.ids, {"age": trial.age}, trial.labels),
    )
    grown: list[ActiveJob] = []

    def grow(alone: ActiveJob) -> TrainedTrees:
        grown.append(alone)
        return TrainedTrees((), np.zeros(1), Logistic(), tuple(alone.own), (), History())

    held_out_score._predict_alone(job, JointModel(ensemble=before, choice=choice), grow)
    (alone,) = grown
    assert alone.earlier is None
    assert alone.parameters.n_estimators == 1_020
    assert alone.parameters.learning_rate == pytest.approx(rate)
