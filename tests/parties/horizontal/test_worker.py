"""The federated framework with workers: the model of one process, in as many rounds, and what workers do not answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost import FederatedGBDTClassifier
from opboost.errors import AccountError, ParameterError
from opboost.horizontal.federated.owners import FederatedAmongOwners
from opboost.horizontal.federated.training import Trained
from opboost.horizontal.noise.distributed_noise import epsilon_of_shares
from opboost.horizontal.rows.client_rows import ClientRows, SummedClients
from opboost.rng import BitSource, seeded
from opboost.trees.tree import Tree
from parties.horizontal.answered_questions import Answered
from protocols.errors import SumRefused, UnexpectedMessage
from protocols.messages.horizontal import FinishTree
from protocols.messages.vertical import Done
from tests.support.federated_workers import job, recipe
from tests.support.workers import Dies, Run, die, meddling, rows, shape_bits


def exact_rows(of: FederatedAmongOwners, *tables: tuple[np.ndarray, np.ndarray]) -> Any:
    X, y = (np.concatenate(parts) for parts in zip(*tables, strict=True))
    return ClientRows(
        X,
        y,
        columns=of.task.grid,
        gradients=of.update.gradients,
        clipping=of.update.clipping,
        walks=of.choices.split_method == "tr",
    )


def simulated(of: FederatedAmongOwners, *, whole: bool) -> Trained:
    """All rows in one holder, or in three."""
    tables = [rows(place) for place in range(3)]
    holder = exact_rows(of, *tables) if whole else SummedClients([exact_rows(of, table) for table in tables])
    return of.trained(holder, shape_bits=shape_bits(), rng=seeded(8))


def shapes(trees: Any) -> list[dict[str, list[Any]]]:
    names = ("columns", "thresholds", "missing_left", "lefts", "rights", "values")
    return [{name: getattr(tree, name).tolist() for name in names} for tree in trees]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path, "memory")


POINTS: dict[str, dict[str, Any]] = {
    "TR Newton": {},
    "TR Newton in batches": {"batch_size": 4},
    "TR Newton IH": {"split_candidates": "ih"},
    "TR Newton IH in batches": {"split_candidates": "ih", "batch_size": 3, "hessian_rounds": 4},
    "TR Newton IH, one column in turn, logarithmic at first": {"interaction": "cyclical", "split_candidates": "log"},
    "Hist, one column": {"split_method": "hist", "interaction": "cyclical"},
    "Hist, one column, IH": {"split_method": "hist", "interaction": "random", "split_candidates": "ih"},
    "Hist, all columns": {"split_method": "hist", "weight_update": "gradient"},
    "forest": {"weight_update": "averaging"},
}


@pytest.mark.parametrize("settings", POINTS.values(), ids=POINTS)
def test_workers_train_the_model_of_one_process_to_the_last_bit_in_the_rounds_that_it_counts(
    run: Run, settings: dict[str, Any]
) -> None:
    of = recipe(**settings)
    one, three = simulated(of, whole=True), simulated(of, whole=False)
    run.start_hub(of)
    for place in range(3):
        run.start_worker(job(of, place))
    found = run.join()
    assert shapes(found["hub"].ensemble.trees) == shapes(one.trees) == shapes(three.trees)
    for place in range(3):
        assert shapes(found[f"w{place}"]) == shapes(one.trees)
    assert run.group.n_rounds == one.n_rounds == three.n_rounds
    other = of.trained(exact_rows(of, rows(0)), shape_bits=shape_bits(), rng=seeded(8))
    assert shapes(other.trees) != shapes(one.trees)


def test_two_hundred_trees_in_batches_of_ten_are_twenty_rounds(run: Run) -> None:
    of = recipe(n_estimators=200, batch_size=10, n_honest=2)
    run.start_hub(of)
    for place in range(3):
        run.start_worker(job(of, place))
    assert len(run.join()["hub"].ensemble.trees) == 200
    assert run.group.n_rounds == 20
    X, y = rows(0)
    settings: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "bounds": (0, 1), "random_state": 0}
    model = FederatedGBDTClassifier(batch_size=10, n_estimators=200, **settings).fit(X, y)
    assert model.communication_.n_rounds == 20


def test_partially_random_trees_are_the_same_with_a_round_more_for_the_root(run: Run) -> None:
    of = recipe(split_method="pr")
    run.start_hub(of)
    for place in range(3):
        run.start_worker(job(of, place))
    assert shapes(run.join()["hub"].ensemble.trees) == shapes(simulated(of, whole=True).trees)
    assert run.group.n_rounds <= simulated(of, whole=True).n_rounds + of.n_trees


@pytest.mark.parametrize("batch_size", [1, 3])
def test_workers_may_add_the_noise_in_shares(run: Run, batch_size: int) -> None:
    of = recipe(n_honest=2, batch_size=batch_size)
    run.start_hub(of)
    for place in range(3):
        run.start_worker(job(of, place))
    answers = [of.rows(*rows(p), rng=seeded(100 + p).fork("rows")) for p in range(3)]
    found = run.join()
    trained = of.trained(Heard(answers), shape_bits=shape_bits(), rng=seeded(8))
    assert shapes(found["hub"].ensemble.trees) == shapes(trained.trees)
    no_noise = recipe(batch_size=batch_size, epsilon=float("inf"), reg_lambda=of.leaf.reg_lambda)
    assert shapes(simulated(no_noise, whole=True).trees) != shapes(trained.trees)
    promise = of.guarantee(is_secure=True)
    assert promise.certified
    assert 1.9 < promise.epsilon <= 2.0
    assert "as long as 2 of the workers in every sum add their share" in str(promise.protected)
    assert "Skellam" in promise.account
    assert [one.epsilon for one in promise.weaker] == [epsilon_of_shares(of.noise, 1, delta=1e-6)]
    with pytest.raises(ParameterError, match="for other contributions"):
        replace(of, update=replace(of.update, clipping=replace(of.update.clipping, noise_std=1e6)))


class Heard(SummedClients):
    """Owners that answer at once, whenever it is heard."""

    def totals_later(self, nodes: Any) -> Any:
        totals = self.totals(nodes)
        return lambda: totals


@pytest.mark.parametrize("epsilon", [1.0, 0.01])
def test_shares_of_noise_add_up_to_what_the_account_is_for(epsilon: float) -> None:
    """Without one owner's share, the others' must do: with 2 of 3 honest, two have the whole variance."""
    of = recipe(n_honest=2, n_estimators=300, max_depth=3, epsilon=epsilon)
    sums = []
    for place in range(2):
        owner = of.rows(*rows(place), rng=seeded(place))
        exact = exact_rows(of, rows(place))
        noise = []
        for number in range(300):
            for holder in (owner, exact):
                holder.start_tree(number % of.choices.batch_size)
            nodes = np.zeros(1, np.int32)
            noise.append(owner.totals(nodes) - exact.totals(nodes))
        sums.append(np.concatenate(noise))
    std = (sums[0] + sums[1]).std(axis=0) / np.array(of.update.scales)
    np.testing.assert_allclose(std, [of.noise.grad_std, of.noise.hess_std], rtol=0.15)
    one_alone = sums[0].std(axis=0) / np.array(of.update.scales)
    assert (one_alone < 0.85 * np.array([of.noise.grad_std, of.noise.hess_std])).all()


@pytest.mark.parametrize(
    "settings", [{"split_method": "hist"}, {"split_method": "pr"}, {"split_candidates": "ih"}], ids=str
)
def test_noise_in_shares_is_refused_where_there_is_no_account(settings: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="of which owners have no account"):
        recipe(n_honest=2, **settings)


def test_a_worker_that_dies_in_a_batch_is_left_out_and_comes_back_for_a_later_one(run: Run) -> None:
    of = recipe(n_estimators=9, batch_size=3)
    run.start_hub(of)
    answered: list[Answered] = []
    for place in range(2):
        run.start_worker(job(of, place))
    run.start_worker(job(of, 2, note_answer=answered.append), through=meddling("masked", die, nth=1))
    found = run.join()
    assert isinstance(found["w2"], Dies)
    assert [each.n_trees for each in answered] == [3, 3, 6]
    trees = shapes(found["hub"].ensemble.trees)
    whole = shapes(simulated(of, whole=True).trees)
    assert len(trees) == 9
    assert trees[:3] == whole[:3]
    assert trees[3:] != whole[3:]


def test_fewer_workers_than_were_promised_are_not_asked(run: Run) -> None:
    run.start_hub(recipe(n_honest=2), wait_s=1.0)
    run.start_worker(job(recipe(n_honest=2), 0))
    assert "1 of 3 workers came where every sum needs 2" in str(run.join("hub", "w0")["hub"])


class Asks:
    """A coordinator that asks for something of its own."""

    def __init__(self, of: FederatedAmongOwners, ask: Any) -> None:
        self._ask = ask
        self.guarantee = of.guarantee

    def train(self, holder: Any, *, shape_bits: BitSource, rng: BitSource) -> Any:
        holder.start_tree(0)
        self._ask(holder)


ROOT = np.zeros(1, np.int32)


def histograms(holder: Any, nodes: np.ndarray = ROOT) -> None:
    holder.write_histograms(nodes, np.zeros((len(nodes), 2, recipe().task.grid.axes.n_bins), np.int64))


def twice(ask: Any) -> Any:
    def both(holder: Any) -> None:
        ask(holder)
        ask(holder)

    return both


def one_tree_more(holder: Any) -> None:
    zeros, leaf = np.zeros(1), np.zeros(1, np.int32)
    holder.finish_tree(Tree(leaf - 1, zeros, zeros > 0, leaf, leaf, zeros, zeros, zeros))
    holder.start_tree(0)


def other_cells(holder: Any) -> None:
    holder.place(recipe().task.grid)
    holder.totals(ROOT)


@pytest.mark.parametrize(
    ("settings", "ask", "words"),
    [
        ({}, histograms, "'want histograms' of 1 nodes at once is no question of this recipe"),
        ({}, twice(lambda holder: holder.totals(ROOT)), "sums that the account does not have"),
        ({}, lambda holder: holder.start_tree(3), "out of its turn"),
        ({}, other_cells, "stay where they are"),
        ({}, lambda holder: holder.start_tree(0), "begun before the one before it was finished"),
        ({"n_estimators": 1}, one_tree_more, "the account is for 1 trees"),
        ({"split_candidates": "ih"}, twice(histograms), "histograms that the account does not have"),
        ({"split_method": "hist"}, lambda holder: holder.totals(ROOT), "sums that the account does not have"),
        ({"split_method": "hist"}, twice(twice(histograms)), "histograms that the account does not have"),
        ({"split_method": "hist", "interaction": "cyclical"}, twice(histograms), "histograms that the account"),
    ],
)
def test_what_the_recipe_does_not_ask_for_is_not_answered(
    run: Run, settings: dict[str, Any], ask: Any, words: str
) -> None:
    of = recipe(**settings)
    run.start_hub(Asks(of, ask), patience_s=1.0)
    for place in range(3):
        run.start_worker(job(of, place))
    found = run.join()
    assert isinstance(found["w0"], (AccountError, UnexpectedMessage))
    assert words in str(found["w0"])
    if not any(word in words for word in ("1 trees", "turn", "before")):
        assert isinstance(found["hub"], SumRefused)


@pytest.mark.parametrize("cuts", [np.zeros((3, 7)), np.ones((2, 8)), -np.arange(24.0).reshape(3, 8)])
def test_cells_of_another_shape_are_refused(run: Run, cuts: np.ndarray) -> None:
    of = recipe(split_candidates="ih")

    class Grid:
        categorical = ()

    grid: Any = Grid()
    grid.cuts = tuple(cuts)
    run.start_hub(Asks(of, lambda holder: holder.place(grid) or holder.totals(ROOT)))
    for place in range(3):
        run.start_worker(job(of, place))
    assert "ascending cuts for each of 3 columns" in str(run.join()["w0"])


class Hasty:
    """A channel whose coordinator says that the run is over when the second tree is to be finished."""

    def __init__(self, channel: Any) -> None:
        self._channel, self._n_finished = channel, 0

    def receive(self) -> Any:
        message = self._channel.receive()
        self._n_finished += isinstance(message, FinishTree)
        return Done() if self._n_finished == 2 else message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)


def test_an_end_before_all_trees_are_there_leaves_no_model(run: Run) -> None:
    of, saved = recipe(), list[Any]()
    run.start_hub(of)
    run.start_worker(job(of, 0, save=saved.append), through=Hasty)
    for place in (1, 2):
        run.start_worker(job(of, place))
    found = run.join()
    assert isinstance(found["w0"], UnexpectedMessage)
    assert "over after 1 of 6 training steps; no model was saved" in str(found["w0"])
    assert (saved, found["hub"].absent) == ([], ("w0",))
