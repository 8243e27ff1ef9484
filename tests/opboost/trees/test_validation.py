"""Rows held out of training: scored after every round, a reason to stop, and never a reason for a tree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opboost.columns import OwnColumn
from opboost.errors import DataError, ParameterError
from opboost.metrics import default_metric, log_loss, metric_by_name
from opboost.split_tests import bind
from opboost.trees.binning import BinnedTable, bin_categories, bin_ranks, bin_values
from opboost.trees.boosting import BoostingParameters, RoundReport
from opboost.trees.losses import Logistic, Loss, Poisson, Softmax, SquaredError
from opboost.trees.tree import Ensemble, Tree
from opboost.trees.validation import History, KnownRows, Metric, ValidationPlan
from opboost.vertical import TrainedTrees, train

LOSSES: list[Loss] = [SquaredError(), Logistic(), Softmax(3), Poisson()]
BY_LOSS = {
    "reg:squarederror": ("mae", "rmse"),
    "binary:logistic": ("auc", "error", "mae", "rmse", "logloss"),
    "multi:softprob": ("merror", "mlogloss"),
    "count:poisson": ("mae", "rmse", "poisson-nloglik"),
}
PARTS = ("columns", "thresholds", "missing_left", "lefts", "rights", "values", "gains", "covers")

pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass
class Problem:
    """Two numbers and a column of categories, with gaps; every third row is held out."""

    loss: Loss
    n_rows: int = 300
    table: np.ndarray = field(init=False)
    labels: np.ndarray = field(init=False)
    is_held_out: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(0)
        table = rng.normal(size=(self.n_rows, 3)).round(1)
        table[:, 2] = rng.integers(0, 6, self.n_rows)
        signal = table[:, 0] - table[:, 1] + (table[:, 2] % 2) + rng.normal(size=self.n_rows)
        table[rng.random(table.shape) < 0.1] = np.nan
        match self.loss:
            case SquaredError():
                self.labels = signal
            case Poisson():
                self.labels = rng.poisson(np.exp(signal / 3)).astype(np.float64)
            case loss:
                n_classes = max(2, loss.n_outputs)
                cuts = np.quantile(signal, np.arange(1, n_classes) / n_classes)
                self.labels = np.digitize(signal, cuts).astype(np.float64)
        self.table, self.is_held_out = table, np.arange(self.n_rows) % 3 == 0

    def train(
        self,
        *,
        names: tuple[str, ...] | None = None,
        reports: list[RoundReport] | None = None,
        labels: np.ndarray | None = None,
        table: np.ndarray | None = None,
        is_validated: bool = True,
        engine: Any = "native",
        **parameters: Any,
    ) -> TrainedTrees:
        metrics = tuple(metric_by_name(name, self.loss) for name in names or BY_LOSS[self.loss.name])
        columns = [
            OwnColumn(f"c{i}", values, is_categorical=i == 2)
            for i, values in enumerate((self.table if table is None else table).T)
        ]
        collected: list[RoundReport] = [] if reports is None else reports
        return train(
            columns,
            self.labels if labels is None else labels,
            np.ones(self.n_rows),
            loss=self.loss,
            parameters=BoostingParameters(**{"n_estimators": 12, "max_depth": 3} | parameters),
            validation=ValidationPlan(self.is_held_out, metrics) if is_validated else None,
            engine=engine,
            on_round=collected.append,
        )


def _identical(some: tuple[Tree, ...], others: tuple[Tree, ...]) -> bool:
    return len(some) == len(others) and all(
        getattr(tree, part).tobytes() == getattr(other, part).tobytes()
        and tree.left_categories == other.left_categories
        for tree, other in zip(some, others, strict=True)
        for part in PARTS
    )


def _first_rounds(ensemble: Ensemble, n_rounds: int) -> Ensemble:
    trees = ensemble.trees[: n_rounds * ensemble.loss.n_outputs]
    return Ensemble(trees, ensemble.base_scores, ensemble.loss, ensemble.features)


of_every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)


@of_every_loss
@pytest.mark.parametrize("growth", [{}, {"max_leaves": 5, "max_depth": 0}, {"max_depth": 1}], ids=str)
def test_every_score_is_that_of_the_model_of_so_many_rounds_on_the_rows_held_out(
    loss: Loss, growth: dict[str, int]
) -> None:
    """To the last digits: scores add up in another order in a finished model."""
    problem = Problem(loss)
    reports: list[RoundReport] = []
    trained = problem.train(reports=reports, **growth)
    ensemble, rows = bind(trained, {}), problem.is_held_out
    assert list(trained.history.scores) == list(BY_LOSS[loss.name])
    for name, scores in trained.history.scores.items():
        metric = metric_by_name(name, loss)
        expected = [
            metric.of(problem.labels[rows], _first_rounds(ensemble, n).predict(problem.table[rows]))
            for n in range(1, 13)
        ]
        assert scores == pytest.approx(expected, rel=1e-12)
        assert [report.scores[name] for report in reports] == scores
    assert [(report.finished, report.total) for report in reports] == [(n, 12) for n in range(1, 13)]


@of_every_loss
def test_the_last_score_of_dart_is_that_of_the_finished_model_whose_trees_weigh_less(loss: Loss) -> None:
    problem = Problem(loss)
    trained = problem.train(booster="dart", rate_drop=0.5)
    predictions = bind(trained, {}).predict(problem.table[problem.is_held_out])
    for name, scores in trained.history.scores.items():
        expected = metric_by_name(name, loss).of(problem.labels[problem.is_held_out], predictions)
        assert scores[-1] == pytest.approx(expected, rel=1e-12)


@of_every_loss
def test_rows_held_out_never_influence_the_trees(loss: Loss) -> None:
    """Other labels of theirs change nothing; a training without them gives the same model, one on all rows another."""
    problem = Problem(loss)
    first = problem.train()
    labels, table = problem.labels.copy(), problem.table.copy()
    labels[problem.is_held_out] = np.roll(labels[problem.is_held_out], 1)
    assert _identical(problem.train(labels=labels).trees, first.trees)
    assert not _identical(problem.train(is_validated=False).trees, first.trees)
    kept = ~problem.is_held_out
    alone = Problem(loss)
    alone.table, alone.labels, alone.n_rows = table[kept], labels[kept], int(kept.sum())
    # With few distinct values every one has a bin of its own, whether rows with it are held out or not.
    mapped, whole = bind(alone.train(is_validated=False), {}), bind(first, {})
    np.testing.assert_allclose(mapped.scores(table[kept]), whole.scores(table[kept]), rtol=1e-12)


@of_every_loss
def test_one_label_less_in_the_training_rows_is_noticed(loss: Loss) -> None:
    problem = Problem(loss)
    labels, row = problem.labels.copy(), int(np.flatnonzero(~problem.is_held_out)[0])
    labels[row] = 1.0 - min(labels[row], 1.0)
    assert not _identical(problem.train(labels=labels).trees, problem.train().trees)


@of_every_loss
def test_training_stops_when_so_many_rounds_brought_nothing_and_keeps_those_up_to_the_best(loss: Loss) -> None:
    problem = Problem(loss)
    whole = problem.train(n_estimators=60, learning_rate=0.9)
    stopped = problem.train(n_estimators=60, learning_rate=0.9, early_stopping_rounds=4)
    scores = whole.history.scores[BY_LOSS[loss.name][-1]]
    best = next(
        n
        for n in range(1, 61)
        if scores[n - 1] == min(scores[:n]) and min(scores[n : n + 4], default=9e9) >= scores[n - 1]
    )
    assert best + 4 < 60
    assert stopped.history.best_round == best
    assert stopped.history.scores == {name: past[: best + 4] for name, past in whole.history.scores.items()}
    assert _identical(stopped.trees, whole.trees[: best * loss.n_outputs])


def test_a_metric_of_which_more_is_better_stops_at_its_highest() -> None:
    problem = Problem(Logistic())
    trained = problem.train(names=("logloss", "auc"), n_estimators=60, learning_rate=0.9, early_stopping_rounds=5)
    past = trained.history.scores["auc"]
    assert trained.history.best_round == int(np.argmax(past)) + 1 == len(past) - 5
    assert len(trained.trees) == trained.history.best_round


def test_without_a_number_of_rounds_to_wait_all_are_kept_and_the_best_is_told() -> None:
    trained = Problem(SquaredError()).train(n_estimators=40, learning_rate=0.9)
    assert len(trained.trees) == 40
    assert trained.history.best_round == int(np.argmin(trained.history.scores["rmse"])) + 1 < 40


def test_training_that_was_still_improving_keeps_every_round() -> None:
    trained = Problem(SquaredError()).train(n_estimators=3, early_stopping_rounds=50)
    assert (trained.history.best_round, len(trained.trees)) == (3, 3)


def test_waiting_without_rows_held_out_is_refused() -> None:
    with pytest.raises(ParameterError, match="early_stopping_rounds needs validation rows; there are none"):
        Problem(SquaredError()).train(is_validated=False, early_stopping_rounds=3)


@pytest.mark.parametrize("engine", ["native", "xgboost"])
@pytest.mark.parametrize("ends", [1, 4])
def test_training_ends_when_the_caller_says_so(engine: Any, ends: int) -> None:
    if engine == "xgboost":
        pytest.importorskip("xgboost")
    problem = Problem(Softmax(3))
    columns = [OwnColumn(f"c{i}", values) for i, values in enumerate(problem.table.T)]
    seen: list[int] = []

    def on_round(report: RoundReport) -> bool:
        seen.append(report.finished)
        return report.finished == ends

    trained = train(
        columns,
        problem.labels,
        np.ones(300),
        loss=problem.loss,
        on_round=on_round,
        engine=engine,
        parameters=BoostingParameters(n_estimators=9, max_depth=2),
    )
    assert seen == list(range(1, ends + 1))
    assert len(trained.trees) == ends * 3


@pytest.mark.parametrize("answer", [None, False])
def test_training_goes_on_while_the_caller_says_nothing(answer: bool | None) -> None:
    problem = Problem(SquaredError())
    trained = train(
        [OwnColumn("c", problem.table[:, 0])],
        problem.labels,
        np.ones(300),
        loss=problem.loss,
        parameters=BoostingParameters(n_estimators=4),
        on_round=lambda report: answer,
    )
    assert len(trained.trees) == 4


def test_a_caller_that_ends_training_before_the_best_round_is_known_leaves_the_best_so_far() -> None:
    problem = Problem(SquaredError())
    metrics = (metric_by_name("rmse", problem.loss),)
    trained = train(
        [OwnColumn("c", problem.table[:, 0])],
        problem.labels,
        np.ones(300),
        loss=problem.loss,
        parameters=BoostingParameters(n_estimators=9, learning_rate=0.1, early_stopping_rounds=5),
        validation=ValidationPlan(problem.is_held_out, metrics),
        on_round=lambda report: report.finished == 2,
    )
    assert (trained.history.best_round, len(trained.trees), len(trained.history.scores["rmse"])) == (2, 2, 2)


@pytest.mark.parametrize("is_held_out", [np.ones(300, np.bool_), np.zeros(300, np.bool_)], ids=["all", "none"])
def test_both_the_rows_to_train_on_and_those_to_validate_must_be_there(is_held_out: np.ndarray) -> None:
    problem = Problem(SquaredError())
    problem.is_held_out = is_held_out
    with pytest.raises(DataError, match="both need one"):
        problem.train()


@settings(max_examples=50, deadline=None)
@given(st.floats(0.01, 0.99), st.integers(2, 200), st.integers(0, 99))
def test_a_share_of_the_rows_is_held_out_at_random(share: float, n_rows: int, seed: int) -> None:
    assume(0 < round(share * n_rows) < n_rows)
    plan, again, other = (
        ValidationPlan.of_share(share, n_rows, (), rng=np.random.default_rng(seed + extra)) for extra in (0, 0, 1000)
    )
    assert plan.is_held_out.sum() == round(share * n_rows)
    np.testing.assert_array_equal(plan.is_held_out, again.is_held_out)
    if n_rows > 100 and 0.2 < share < 0.8:
        assert (plan.is_held_out != other.is_held_out).any()


def test_groups_of_rows_are_held_out_as_a_whole() -> None:
    groups, rng = np.random.default_rng(1).integers(0, 10, 200) * 7.0, np.random.default_rng(2)
    held_out = ValidationPlan.of_share(0.3, 200, (), groups=groups, rng=rng).is_held_out
    assert len(np.unique(groups[held_out])) == 3
    assert not set(groups[held_out]) & set(groups[~held_out])


@pytest.mark.parametrize("groups", [[1, 1, 1], [1, 1, 2], [1, 2, 2], [1, 2, 3]])
@pytest.mark.parametrize("share", [0.1, 0.2, 0.5, 0.8, 0.9])
def test_which_rows_make_a_group_does_not_decide_whether_rows_can_be_held_out(groups: list[int], share: float) -> None:
    found, rng = np.array(groups, np.float64), np.random.default_rng(2)
    if round(share * 3) in (0, 3):
        with pytest.raises(ParameterError, match=r"of 3 records a share of 0\.[19] leaves"):
            ValidationPlan.of_share(share, 3, (), groups=found, rng=rng)
        return
    held_out = ValidationPlan.of_share(share, 3, (), groups=found, rng=rng).is_held_out
    assert 0 < held_out.sum() < 3
    assert len(set(groups)) == 1 or not set(found[held_out]) & set(found[~held_out])


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20), st.booleans())
def test_the_best_round_is_the_first_of_the_best(past: list[int], is_higher_better: bool) -> None:
    history, deciding = History(), Metric("m", log_loss, is_higher_better=is_higher_better)
    for score in past:
        history.add({"other": 1.0, "m": float(score)}, deciding)
    assert history.best_round == past.index((max if is_higher_better else min)(past)) + 1
    assert history.scores["m"] == past


@of_every_loss
def test_the_default_metric_is_one_that_scores_what_the_loss_predicts(loss: Loss) -> None:
    assert default_metric(loss) == BY_LOSS[loss.name][-1]


@of_every_loss
def test_scores_and_the_round_to_stop_at_are_those_of_xgboost(loss: Loss) -> None:
    """XGBoost computes metrics in single precision; of counts, Hessians lie on a coarser grid."""
    xgboost = pytest.importorskip("xgboost")
    problem, names = Problem(loss), list(BY_LOSS[loss.name])
    base = {"base_score": 0.4} if loss.name != "multi:softprob" else {"base_score": 0.5}
    ours = problem.train(n_estimators=30, max_cat_to_onehot=6, early_stopping_rounds=30, **base)
    kinds = {"feature_types": ["q", "q", "c"], "enable_categorical": True}
    rows = problem.is_held_out
    matrices = [xgboost.DMatrix(problem.table[part], problem.labels[part], **kinds) for part in (~rows, rows)]
    found: dict[str, Any] = {}
    settings_ = {
        "objective": loss.name,
        "tree_method": "hist",
        "nthread": 1,
        "max_depth": 3,
        "eval_metric": names,
        "max_cat_to_onehot": 7,
        **base,
    }
    if loss.n_outputs > 1:
        settings_["num_class"] = loss.n_outputs
    booster = xgboost.train(
        settings_,
        matrices[0],
        30,
        evals=[(matrices[1], "v")],
        early_stopping_rounds=30,
        evals_result=found,
        verbose_eval=False,
    )
    for name in names:
        # Trees grow apart after some rounds, when two cuts are of nearly the same gain.
        assert ours.history.scores[name][:3] == pytest.approx(found["v"][name][:3], rel=1e-4)
    assert ours.history.best_round == pytest.approx(booster.best_iteration + 1, abs=5)


@given(st.data(), st.integers(3, 9))
def test_known_rows_lie_in_the_bins_of_the_training_table(data: st.DataObject, max_bin: int) -> None:
    """The training rows themselves are in their own bins; of other rows, categories that are new count as missing."""
    values = st.sampled_from([*range(-4, 5), np.nan])
    numbers, ranks = (np.array(data.draw(st.lists(values, min_size=6, max_size=6)), float) for _ in range(2))
    categories, ranks = np.where(numbers < 0, np.nan, numbers % 3), np.where(ranks < 0, np.nan, ranks)
    cuts = np.array(sorted(data.draw(st.sets(st.integers(0, 3)))), np.int64)
    table = BinnedTable.of(
        [
            bin_values(numbers, max_bin=max_bin),
            bin_categories(categories, max_bin=9),
            bin_ranks(np.where(np.isnan(ranks), 5, ranks).astype(np.uint32), 5, max_bin=max_bin, cuts=cuts),
        ]
    )
    known = KnownRows((numbers, categories, ranks), np.zeros(6))
    np.testing.assert_array_equal(known.binned(table).bins, table.bins)
    other = KnownRows((numbers, np.full(6, 7.0), ranks), np.zeros(6)).binned(table)
    assert (other.bins[1] == table.axes.sizes[1] - 1).all()


def test_known_rows_stop_as_the_same_rows_of_the_table_do() -> None:
    """The oracle: held-out rows of the training table; of few values, so that these make no difference to the bins."""
    problem = Problem(Logistic())
    table = np.clip(problem.table.round(0), -1, 1)
    metrics = (metric_by_name("logloss", Logistic()),)
    parameters = BoostingParameters(n_estimators=40, max_depth=3, early_stopping_rounds=3)

    def trained(rows: np.ndarray, **how: Any) -> TrainedTrees:
        columns = [OwnColumn(f"c{i}", values[rows]) for i, values in enumerate(table.T)]
        labels = problem.labels[rows]
        return train(columns, labels, np.ones(len(labels)), loss=Logistic(), parameters=parameters, **how)

    everything, held = np.arange(problem.n_rows), problem.is_held_out
    assert all(np.isin(values[held], [*values[~held], np.nan]).all() or np.isnan(values).any() for values in table.T)
    plan = trained(everything, validation=ValidationPlan(held, metrics))
    known = trained(np.flatnonzero(~held), known=KnownRows(tuple(table[held].T), problem.labels[held], metrics))
    assert known.history == plan.history
    assert _identical(known.trees, plan.trees)
    assert len(known.trees) < 40
