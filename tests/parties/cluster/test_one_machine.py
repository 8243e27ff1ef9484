"""On one machine one process grows all trees: nobody is listened to, and a process that dies costs time alone."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from opboost.schema import ColumnSchema
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Logistic
from opboost.vertical import TrainedTrees
from parties.cluster import training
from parties.cluster.dask_cluster import cluster
from parties.cluster.kept_trees import KeptTrees
from parties.cluster.one_machine import grow_in_one_process, is_on_one_machine
from parties.cluster.training_partitions import LABEL, WEIGHT, OwnPartitions
from parties.config.cluster_section import DaskSection
from protocols.transport.keys import is_loopback

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'opboost[dask]'")
xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed: pip install 'opboost[dask]'")
psutil = pytest.importorskip("psutil")

if TYPE_CHECKING:
    from distributed import Client


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster(DaskSection(workers=2)) as found:
        yield found


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> OwnPartitions:
    folder, draw = tmp_path_factory.mktemp("own"), np.random.default_rng(1)
    paths = tuple(folder / f"{part}.parquet" for part in range(3))
    for path in paths:
        age = draw.random(500)
        pd.DataFrame({"age": age, "default": (age > draw.random(500)).astype(float)}).to_parquet(path)
    return OwnPartitions(paths, (ColumnSchema(name="age", lower=0, upper=1),), "default")


def grown(own: OwnPartitions, client: Client, n_trees: int) -> TrainedTrees:
    parameters = BoostingParameters(n_estimators=n_trees, max_depth=2)
    return training.train_on_partitions(own, [], loss=Logistic(), parameters=parameters, client=client, wait_s=30)


def heard_meanwhile(own: OwnPartitions, client: Client) -> set[str]:
    """Addresses off loopback at which this process or the cluster's begin to listen while trees grow."""
    found, is_over = set[tuple[str, int]](), threading.Event()
    processes = [psutil.Process(pid) for pid in (os.getpid(), *client.run(os.getpid).values())]

    def listening() -> set[tuple[str, int]]:
        heard = [one for process in processes for one in process.net_connections("tcp")]
        return {tuple(one.laddr) for one in heard if one.status == psutil.CONN_LISTEN and not is_loopback(one.laddr.ip)}

    def listen() -> None:
        while not is_over.is_set():
            found.update(listening())

    before, watcher = listening(), threading.Thread(target=listen)
    watcher.start()
    grown(own, client, 60)
    is_over.set()
    watcher.join()
    return {address for address, _ in found - before}


def test_no_process_listens_to_other_machines_while_trees_grow(own: OwnPartitions, client: Client) -> None:
    assert is_on_one_machine(client)
    assert heard_meanwhile(own, client) == set()


def test_a_cluster_without_processes_is_on_no_machine() -> None:
    """Or training would wait without end for one to come."""

    class Empty:
        def nthreads(self) -> dict[str, int]:
            return {}

    assert not is_on_one_machine(Empty())  # type: ignore[arg-type]


def test_several_processes_of_xgboost_do(own: OwnPartitions, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "is_on_one_machine", lambda client: False)
    assert heard_meanwhile(own, client)


def rows(part: int) -> pd.DataFrame:
    feature = np.random.default_rng(part).random(300).astype(np.float32)
    return pd.DataFrame({"f0": feature, LABEL: feature > 0.5, WEIGHT: np.float32(1)})


def dying(marks: Path, part: int) -> pd.DataFrame:
    """Partition 1 ends its process once, after trees were kept."""
    if part == 1 and (marks / "trees").exists() and not (marks / "died").exists():
        (marks / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return rows(part)


def next_rounds(n_done: int) -> int:
    return min(2, 5 - n_done)


def test_after_a_process_died_training_goes_on_after_the_trees_that_were_kept(tmp_path: Path, client: Client) -> None:
    settings: dict[str, Any] = {"max_bin": 16, "seed": 3, "subsample": 0.7, "objective": "binary:logistic"}
    grow = partial(grow_in_one_process, client, settings=settings)
    whole = grow(rows, 3, rounds=next_rounds, kept=KeptTrees(None))
    begun = grow(rows, 3, rounds=lambda n_done: 2 - n_done, kept=KeptTrees(tmp_path / "trees"))
    assert begun.num_boosted_rounds() == 2
    ended = grow(partial(dying, tmp_path), 3, rounds=next_rounds, kept=KeptTrees(tmp_path / "trees"))
    assert (tmp_path / "died").exists()
    assert bytes(ended.save_raw("ubj")) == bytes(whole.save_raw("ubj"))
