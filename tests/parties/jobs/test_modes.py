"""What jobs of every role create is for its owner alone, also while they are at work and whatever the umask is.

The demos' tests look at a coordinator, workers and owners in a chain in the same way.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parties.commands.report import deliver
from parties.reports.writing import report_of
from tests.support.modes import Watch, exposed, open_umask
from tests.support.partitioned_sites import MODEL, divide, predict_both, train_both
from tests.support.processes import Command, finish


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files of this process and of its children go."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@pytest.fixture
def parties(sites: Any) -> Iterator[Any]:
    """A bank and a shop whose own files are closed to others, on a system that closes nothing by itself."""
    for site in (sites.bank, sites.shop):
        site.write()
        for folder, _, files in os.walk(site.path):
            os.chmod(folder, 0o700)
            for file in files:
                os.chmod(Path(folder, file), 0o600)
    with open_umask():
        yield sites


def succeed(*processes: Command) -> None:
    ends = finish(*processes, seconds=60)
    assert [code for code, _, _ in ends] == [0] * len(processes), ends


def test_processes_of_both_parties_expose_nothing_at_any_time(parties: Any, temporary: Path) -> None:
    bank, shop = parties.bank, parties.shop
    for site in (bank, shop):
        site.run.update(report=True, align={"method": "psi"})
    with Watch(bank.path, shop.path, temporary) as watch:
        plan = report_of(shop.write(), before=True)
        plan.write()
        deliver(plan, "csv", shop.path / "plan.csv")
        succeed(bank.start("party-a"), shop.start("party-b"))
        service = shop.start("party-b", "--serve")
        succeed(bank.start("predict", "--out", str(bank.path / "scores.parquet")))
        succeed(bank.start("predict", "--mode", "desensitized"))
        service.send_signal(signal.SIGTERM)
        succeed(service)
    assert watch.exposed == set()
    files = "spring.plan.html plan.csv report.html log.txt predictions.csv scores.parquet model.json order.share"
    stores = "ledger.sqlite ledger.sqlite-wal ledger.sqlite-shm"
    assert watch.names.issuperset(f"{files} {stores} journal journal.json offer 0.ranks".split())


def test_partitions_and_what_dask_puts_aside_are_exposed_to_nobody(
    parties: Any, temporary: Path, outcomes: Callable[..., dict[str, Any]]
) -> None:
    dask = pytest.importorskip("dask", reason="Dask is not installed: pip install 'opboost[dask]'")
    pytest.importorskip("xgboost", reason="XGBoost is not installed: pip install 'opboost[dask]'")
    from parties.cluster.dask_cluster import cluster
    from parties.config.cluster_section import DaskSection

    bank, shop = parties.bank, parties.shop
    with (
        dask.config.set({"distributed.worker.memory.target": 1e-6, "distributed.worker.memory.spill": 1e-6}),
        Watch(bank.path, shop.path, temporary) as watch,
        cluster(DaskSection(workers=2)) as client,
    ):
        # Outside of tests workers have the umask of whoever starts them.
        client.run(os.umask, 0)
        for site, n_parts in ((bank, 3), (shop, 2)):
            divide(site, n_parts)
            for path in (site.path / "parts", *(site.path / "parts").iterdir()):
                path.chmod(path.stat().st_mode & 0o700)
            folder = site.path / "shared" / "partitions"
            site.run.update(engine="dask", data="parts", timeout=5)
            site.run["dask"] = {"scheduler": client.scheduler.address, "folder": str(folder)}
        bank.run["model"] = MODEL
        watch.exposed.clear()
        keys = client.security
        tls = {
            "distributed.comm.tls.ca-file": keys.tls_ca_file,
            "distributed.comm.tls.client.key": keys.tls_client_key,
            "distributed.comm.tls.client.cert": keys.tls_client_cert,
        }
        with dask.config.set(tls):
            assert train_both(parties, outcomes) == {}
            assert predict_both(parties, outcomes, out=bank.path / "out" / "june")["shop"] == 400
        kept = client.map(np.ones, [10**5] * 4, pure=False)
        client.gather(kept)
        spilled = [path for path in temporary.rglob("storage/*") if path.is_file()]
        assert spilled
    assert {path for path in watch.exposed if str(temporary) not in path} == set()
    assert watch.names >= {"keys", "000000.parquet", "june"}
    assert any(name.endswith(".npy") for name in watch.names)
    # Dask writes its own files as it likes, all of them in a folder that nobody else can enter.
    (scratch,) = {path.relative_to(temporary).parts[0] for path in spilled}
    assert not [path for path in watch.exposed if path.split()[1] == str(temporary / scratch)]
    assert list(temporary.iterdir()) == []


def test_what_others_may_use_is_seen(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    for name, mode in (("mine", 0o600), ("read", 0o604), ("b.public", 0o644), ("a.public", 0o664)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    (tmp_path / "open").mkdir(0o711)
    assert exposed(tmp_path) == {
        f"0604 {tmp_path / 'read'}",
        f"0664 {tmp_path / 'a.public'}",
        f"0711 {tmp_path / 'open'}",
    }
    with Watch(tmp_path) as watch:
        (tmp_path / "short").touch(0o644)
        deadline = time.monotonic() + 10
        while "short" not in watch.names:
            assert time.monotonic() < deadline
        (tmp_path / "short").unlink()
    assert f"0644 {tmp_path / 'short'}" in watch.exposed
