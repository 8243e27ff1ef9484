"""Trees that XGBoost grows on two workers are as good as those of one machine, and are bound and routed like them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

from opboost.cell_grid import cell_tests
from opboost.columns import OwnColumn, RankColumn
from opboost.desensitize import ColumnMechanism, exact
from opboost.errors import DataError, ParameterError
from opboost.mechanism_settings import MechanismSettings
from opboost.preprocess import own_features
from opboost.routing import PackedAnswers, Router, resolve
from opboost.schema import ColumnSchema, Kind, Missing
from opboost.split_tests import bind, feature_matrix, list_tests, unpacked
from opboost.trees.binning import choose_cuts
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.losses import Logistic, Softmax, SquaredError
from opboost.vertical import TrainedTrees, train
from parties.cluster import training as dask_training
from parties.cluster.dask_cluster import cluster
from parties.cluster.kept_trees import KeptTrees
from parties.cluster.prediction import score_part
from parties.cluster.training import train_on_partitions
from parties.cluster.training_partitions import OwnPartitions, RankPartitions
from parties.config.cluster_section import DaskSection
from parties.errors import WorkersLost
from parties.vertical.release_offer import OfferedRanks, rank_columns
from tests.support.outcomes import LIMIT_S
from tests.support.released_partitions import answered, rank_partitions, ranks_of, release

distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'opboost[dask]'")
pytest.importorskip("xgboost", reason="XGBoost is not installed: pip install 'opboost[dask]'")

if TYPE_CHECKING:
    from distributed import Client

N_PARTS, N_ROWS = 4, 2_000
OWN = (ColumnSchema(name="age", lower=0, upper=1),)
MECHANISMS = tuple(
    ColumnMechanism(schema, MechanismSettings(epsilon=0.5))
    for schema in (
        ColumnSchema(name="spend", lower=0, upper=1),
        ColumnSchema(name="visits", lower=0, upper=1, missing=Missing.CATEGORY),
        ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("north", "south")),
    )
)
PARAMETERS = BoostingParameters(n_estimators=20, max_depth=4)
WAIT_S = 6.0


@dataclass(frozen=True, slots=True)
class Case:
    """Both parties' partitions, and B's release."""

    bank: OwnPartitions
    shop: tuple[Path, ...]
    columns: tuple[OfferedRanks, ...]
    ranks: RankPartitions

    def whole(self, paths: tuple[Path, ...]) -> pd.DataFrame:
        return pd.concat([pd.read_parquet(path) for path in paths], ignore_index=True)

    @property
    def labels(self) -> np.ndarray:
        return self.whole(self.bank.paths)["default"].to_numpy(np.float64)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster(DaskSection(workers=2)) as found:
        yield found


@pytest.fixture
def outside() -> Iterator[Client]:
    """The scheduler is a process of its own: XGBoost's tracker, which may break when a worker does, runs in it."""
    with (
        distributed.SubprocessCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as running,
        cluster(DaskSection(scheduler=running.scheduler_address)) as found,
    ):
        found.wait_for_workers(2, timeout=LIMIT_S)
        yield found


@pytest.fixture
def as_of_many_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """XGBoost grows trees in all processes, as where they are not on one machine."""
    monkeypatch.setattr(dask_training, "is_on_one_machine", lambda client: False)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, client: Client) -> Case:
    folder, draw = tmp_path_factory.mktemp("parties"), np.random.default_rng(8)
    bank, shop = [], []
    for p in range(N_PARTS):
        ids = np.arange(p * N_ROWS, (p + 1) * N_ROWS)
        age, spend, visits = draw.random((3, N_ROWS))
        town = draw.choice(["north", "south"], N_ROWS)
        score = 4 * age + 6 * spend * (visits > 0.3) - 2 * (town == "north") - 3
        label = (draw.random(N_ROWS) < 1 / (1 + np.exp(-score))).astype(float)
        is_missing = draw.random(N_ROWS) < 0.1
        bank.append(folder / f"bank{p}.parquet")
        shop.append(folder / f"shop{p}.parquet")
        pd.DataFrame({"id": ids, "age": age, "default": label}).to_parquet(bank[-1])
        raw = {"id": ids, "spend": spend, "visits": np.where(is_missing, np.nan, visits), "town": town}
        pd.DataFrame(raw).to_parquet(shop[-1])
    released = release(shop, MECHANISMS, folder / "blocks", client)
    ranks = rank_partitions(released, [N_ROWS] * N_PARTS, folder / "ranks", "shop")
    return Case(OwnPartitions(tuple(bank), OWN, "default"), tuple(shop), tuple(rank_columns(released)), ranks)


def on_one_machine(case: Case) -> TrainedTrees:
    own = OwnColumn("age", case.whole(case.bank.paths)["age"].to_numpy())
    ranks = ranks_of(case.columns)
    columns = [
        RankColumn("shop", i, f"c{i}", ranks[f"c{i}"].to_numpy(), column.ranking.table.n_ranks)
        for i, column in enumerate(case.columns)
    ]
    labels = case.labels
    return train([own, *columns], labels, np.ones(len(labels)), loss=Logistic(), parameters=PARAMETERS)


def routed(case: Case, trained: TrainedTrees) -> tuple[Router, np.ndarray]:
    """Everything in memory: the router, and predictions for the training records."""
    tests = list_tests(trained)
    wanted = tests["shop"]
    router = Router(
        MECHANISMS, resolve([one.ranking for one in case.columns], wanted.columns, wanted.ranks, wanted.missing_left)
    )
    ensemble = bind(trained, tests)
    own = own_features(case.whole(case.bank.paths), OWN)
    answers = {"shop": router.answer(case.whole(case.shop), rng=None)}
    return router, ensemble.predict(feature_matrix(ensemble, own, answers, N_PARTS * N_ROWS))


@pytest.mark.parametrize("of_many_machines", [False, True])
def test_the_model_is_as_good_as_one_machines_and_its_partitions_are_scored_alike(
    tmp_path: Path, case: Case, client: Client, request: pytest.FixtureRequest, of_many_machines: bool
) -> None:
    if of_many_machines:
        request.getfixturevalue("as_of_many_machines")
    mine = train_on_partitions(
        case.bank, [case.ranks], loss=Logistic(), parameters=PARAMETERS, client=client, wait_s=WAIT_S
    )
    router, scores = routed(case, mine)
    _, theirs = routed(case, on_one_machine(case))
    assert roc_auc_score(case.labels, scores) == pytest.approx(roc_auc_score(case.labels, theirs), abs=0.01)
    assert roc_auc_score(case.labels, scores) > 0.75
    bits = answered(router, case.shop, tmp_path / "bits")
    ensemble = bind(mine, list_tests(mine))
    found = [score_part(ensemble, OWN, part, {"shop": one}) for part, one in zip(case.bank.paths, bits, strict=True)]
    np.testing.assert_array_equal(np.concatenate(found), scores)
    pq.write_table(pq.read_table(bits[0]).slice(1), tmp_path / "short.parquet")
    with pytest.raises(DataError, match="does not answer"):
        score_part(ensemble, OWN, case.bank.paths[0], {"shop": tmp_path / "short.parquet"})


def test_a_worker_killed_in_training_costs_time_and_nothing_else(
    case: Case, outside: Client, monkeypatch: pytest.MonkeyPatch, as_of_many_machines: None
) -> None:
    """It is killed while the two meet, which the other one notices last of all."""
    client = outside
    killed, attempts, grow = threading.Event(), [], dask_training._train
    monkeypatch.setattr(dask_training, "_train", lambda *arguments: attempts.append(1) or grow(*arguments))
    before = {path: path.read_bytes() for path in case.ranks.paths}

    def kill_one(address: str, pid: int) -> None:
        with distributed.Client(address, security=client.security, set_as_default=False) as watcher:
            while not any(key.startswith("fn-") for keys in watcher.processing().values() for key in map(str, keys)):
                time.sleep(0.001)
            os.kill(pid, signal.SIGKILL)
            killed.set()

    victim = next(iter(client.run(os.getpid).values()))
    thread = threading.Thread(target=kill_one, args=(client.scheduler.address, victim), daemon=True)
    thread.start()
    trained = train_on_partitions(
        case.bank, [case.ranks], loss=Logistic(), parameters=PARAMETERS, client=client, wait_s=WAIT_S
    )
    thread.join(10)
    client.wait_for_workers(2, timeout=30)
    assert victim not in client.run(os.getpid).values()
    assert killed.is_set()
    assert len(attempts) == 2
    assert len(trained.trees) == PARAMETERS.n_estimators
    assert {path: path.read_bytes() for path in case.ranks.paths} == before
    # Nobody waits for the one that is gone any more.
    deadline = time.monotonic() + LIMIT_S
    while any(client.processing().values()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_training_that_was_interrupted_goes_on_after_the_last_finished_trees(
    tmp_path: Path, case: Case, client: Client, monkeypatch: pytest.MonkeyPatch, as_of_many_machines: None
) -> None:
    """Twice, of which the first time the file with the trees is damaged, and they are grown again."""
    parameters = BoostingParameters(n_estimators=5, max_depth=2, subsample=0.7)
    parts: list[int] = []
    keep = KeptTrees.save

    def save(kept: KeptTrees, booster: Any) -> None:
        keep(kept, booster)
        parts.append(booster.num_boosted_rounds())
        if len(parts) <= 2:
            raise WorkersLost("the machine went down")

    monkeypatch.setattr(dask_training, "LEAST_AT_ONCE", 2)
    monkeypatch.setattr(KeptTrees, "save", save)
    grow = partial(
        train_on_partitions,
        case.bank,
        [case.ranks],
        loss=Logistic(),
        parameters=parameters,
        client=client,
        wait_s=WAIT_S,
        seed=3,
    )
    with pytest.raises(WorkersLost):
        grow(journal=tmp_path)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    with pytest.raises(WorkersLost):
        grow(journal=tmp_path)
    trained = grow(journal=tmp_path)
    assert parts == [2, 2, 4, 5]
    for mine, whole in zip(trained.trees, grow().trees, strict=True):
        for name in ("columns", "thresholds", "values"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(whole, name))


def test_constraints_and_other_objectives_hold(case: Case, client: Client) -> None:
    trained = train_on_partitions(
        case.bank,
        [case.ranks],
        loss=SquaredError(),
        parameters=PARAMETERS,
        client=client,
        wait_s=WAIT_S,
        constraints=ColumnConstraints(interactions=[["age"], ["c0", "c1"]]),
    )
    used = [set(tree.columns[~tree.is_leaf].tolist()) for tree in trained.trees]
    assert all(columns <= {1, 2} or len(columns) == 1 for columns in used)
    assert {1, 2} in used
    several = train_on_partitions(
        case.bank, [case.ranks], loss=Softmax(2), parameters=PARAMETERS, client=client, wait_s=WAIT_S
    )
    assert len(several.trees) == 2 * PARAMETERS.n_estimators


def test_what_does_not_fit_is_refused(tmp_path: Path, case: Case, client: Client) -> None:
    def grow(bank: OwnPartitions, ranks: RankPartitions, parameters: BoostingParameters = PARAMETERS) -> None:
        train_on_partitions(bank, [ranks], loss=Logistic(), parameters=parameters, client=client, wait_s=WAIT_S)

    with pytest.raises(ParameterError, match="holds no rows out"):
        grow(case.bank, case.ranks, BoostingParameters(early_stopping_rounds=2))
    with pytest.raises(DataError, match="must have 3 partitions"):
        grow(OwnPartitions(case.bank.paths[:3], OWN, "default"), case.ranks)
    few = replace(case.ranks, n_ranks=(3, *case.ranks.n_ranks[1:]))
    with pytest.raises(DataError, match="ranks that were not offered"):
        grow(case.bank, few)
    swapped = OwnPartitions((tmp_path / "short.parquet", *case.bank.paths[1:]), OWN, "default")
    pd.read_parquet(case.bank.paths[0]).iloc[:-1].to_parquet(swapped.paths[0])
    with pytest.raises(DataError, match="other rows or columns than were agreed"):
        grow(swapped, case.ranks)
    with pytest.raises(ParameterError, match="town have none"):
        OwnPartitions(case.bank.paths, (MECHANISMS[2].schema,), "default")


def test_trees_on_an_agreed_grid_ask_for_cells_alone(tmp_path: Path, case: Case, client: Client) -> None:
    """The grid's cuts are all that trees know of the ranks; answers are numbers of cells, on workers too."""
    counts = [
        sum(np.bincount(ranks, minlength=column.ranking.table.n_ranks + 1) for ranks in column.ranks())
        for column in case.columns
    ]
    cuts = tuple(choose_cuts(np.asarray(found)[:-1], max_bin=8) for found in counts)
    ranks = replace(case.ranks, cuts=cuts)
    mine = train_on_partitions(case.bank, [ranks], loss=Logistic(), parameters=PARAMETERS, client=client, wait_s=WAIT_S)
    tests = list_tests(mine)
    assert len(tests["shop"].ranks) == 0
    ensemble = bind(mine, tests)
    assert [feature.n_cells for feature in ensemble.features] == [None, 8, 8, 2, 2]
    thresholds = [
        [column.ranking.table.threshold(rank) for rank in own] for column, own in zip(case.columns, cuts, strict=True)
    ]
    router = Router(
        MECHANISMS, cell_tests([one.ranking for one in case.columns], [np.array(own) for own in thresholds])
    )
    bits = answered(router, case.shop, tmp_path / "bits")
    scores = [score_part(ensemble, OWN, part, {"shop": one}) for part, one in zip(case.bank.paths, bits, strict=True)]
    found = np.concatenate(scores)
    assert roc_auc_score(case.labels, found) > 0.75
    raw = case.whole(case.shop)
    exactly = {mechanism.schema.name: exact(mechanism, column) for mechanism, column in router.encode(raw)}
    answers = unpacked(ensemble, "shop", PackedAnswers(router).of(exactly, len(raw)))
    own = own_features(case.whole(case.bank.paths), OWN)
    np.testing.assert_array_equal(found, ensemble.predict(feature_matrix(ensemble, own, {"shop": answers}, len(raw))))
    # Of the released ranks, trees on one machine see the same cells.
    theirs = train(
        [
            OwnColumn("age", own["age"]),
            *(
                RankColumn(
                    "shop",
                    i,
                    f"c{i}",
                    ranks_of(case.columns)[f"c{i}"].to_numpy(),
                    column.ranking.table.n_ranks,
                    cuts=cuts[i],
                )
                for i, column in enumerate(case.columns)
            ),
        ],
        case.labels,
        np.ones(len(case.labels)),
        loss=Logistic(),
        parameters=PARAMETERS,
    )
    other = bind(theirs, list_tests(theirs))
    scores = other.predict(feature_matrix(other, own, {"shop": answers}, len(raw)))
    assert roc_auc_score(case.labels, scores) == pytest.approx(roc_auc_score(case.labels, found), abs=0.01)
