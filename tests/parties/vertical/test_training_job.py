"""The active party's job: its greeting tells what is planned, and constraints name columns that somebody brings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opboost.columns import RankColumn
from opboost.errors import ParameterError
from opboost.split_tests import EarlierModel, bind, list_tests
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.losses import Logistic
from opboost.vertical import train
from parties.runs.earlier_model import Earlier
from protocols.messages.fields import MAX_TESTS
from protocols.messages.vertical import Hello, Role, Task, Terms


def test_a_greeting_tells_rows_objective_and_the_most_tests(trial: Any) -> None:
    job = trial.active(agreed={"shop": Terms(columns=4)})
    hello = job.hello("shop")
    assert (hello.role, hello.n_rows, hello.plan.objective) == (Role.ACTIVE, 300, "binary:logistic")
    assert hello.plan.tests == job.most_tests("shop")
    assert hello.agreed == Terms(columns=4)
    assert job.hello("post").agreed == Terms()
    assert (hello.held, hello.id_point) == (None, None)


@pytest.mark.parametrize(("n_trees", "depth"), [(1, 1), (4, 3), (10, 2)])
def test_a_tree_of_full_depth_has_the_most_splits(trial: Any, n_trees: int, depth: int) -> None:
    parameters = BoostingParameters(n_estimators=n_trees, max_depth=depth)
    job = trial.active(parameters=parameters)
    assert job.most_tests("shop") == n_trees * (2**depth - 1)
    assert trial.active(parameters=BoostingParameters(n_estimators=10**6, max_depth=30)).most_tests("shop") == MAX_TESTS


@pytest.mark.parametrize("name", ["age", "post"])
def test_of_an_earlier_model_a_greeting_tells_no_number_that_depends_on_labels_but_a_peers_own(
    trial: Any, name: str
) -> None:
    """It told how many splits the earlier trees have in all, those on the bank's own and on others' columns too."""
    codes = trial.tables["post"]["parcels"].to_numpy().astype(np.uint8) - 1
    other = trial.active().own[0] if name == "age" else RankColumn("post", 0, "c0", codes, 33)
    spend = trial.tables["shop"]["spend"].to_numpy().astype(np.uint8) - 1
    columns = [other, RankColumn("shop", 0, "c0", spend, 33)]
    found = []
    for labels in (trial.labels, (spend > 10) * 1.0):
        trained = train(columns, labels, np.ones(300), loss=Logistic(), parameters=BoostingParameters(n_estimators=3))
        tests = list_tests(trained)
        earlier = Earlier(EarlierModel(bind(trained, tests)), {}, {})
        job = trial.active(earlier=earlier)
        n_more = [job.hello(peer).plan.tests - trial.active().most_tests(peer) for peer in ("shop", "post", "isp")]
        assert n_more == [len(tests["shop"].ranks), len(tests["post"].ranks) if "post" in tests else 0, 0]
        found.append(sum(int((~tree.is_leaf).sum()) for tree in trained.trees))
    assert found[0] > found[1] > 0


def test_before_alignment_there_is_nothing_to_prove_and_afterwards_per_peer_and_order(trial: Any) -> None:
    assert trial.active(id_digest=None).passwords(["shop"]) == {}
    order = np.arange(300)[::-1].copy()
    found = trial.active(orders={"post": order}).passwords(["shop", "post"])
    assert found["shop"] != found["post"]
    assert found["shop"] == trial.active().passwords(["shop"])["shop"]
    assert found["shop"] != trial.active(id_digest="other").passwords(["shop"])["shop"]


def test_rows_that_lie_elsewhere_are_counted_there(trial: Any) -> None:
    class Grower:
        n_rows = 7

    assert trial.active(grow=Grower(), labels=np.empty(0)).n_rows == 7


@pytest.mark.parametrize(("name", "is_brought"), [("age", True), ("c1", True), ("c2", False)])
def test_a_constraint_on_a_column_that_nobody_brings_is_refused_before_a_release(
    trial: Any, name: str, is_brought: bool
) -> None:
    theirs = Hello(role=Role.PASSIVE, party="shop", run_id="spring", task=Task.TRAIN, n_rows=300, names=("c0", "c1"))
    job = trial.active(constraints=ColumnConstraints({name: 1}, ()))
    if is_brought:
        job.check_names({"shop": theirs})
        return
    with pytest.raises(ParameterError, match=r"c2.* Nothing was released$"):
        job.check_names({"shop": theirs})


def test_without_a_journal_nothing_was_received(trial: Any) -> None:
    assert trial.active().receipt("shop").held() is None
