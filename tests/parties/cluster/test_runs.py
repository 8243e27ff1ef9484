"""Run files with `engine: dask`: the commands of both parties, over partitions, as processes and side by side."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from opboost.errors import DataError
from parties.cluster.dask_cluster import cluster
from parties.config.cluster_section import DaskSection
from parties.config.reading import read_run
from parties.config.vertical import ActiveRun, PassiveRun
from parties.doctor.check_result import Status
from parties.doctor.vertical import examine
from parties.errors import ConfigError, Disagreement, LedgerError, RunFolderError, TableError, WorkersLost
from parties.jobs.answer_vertical import serve_passive
from parties.jobs.predict_vertical import predict_active
from parties.jobs.train_vertical import train_active, train_passive
from parties.vertical.held_out import places_of
from protocols.errors import PeerLost
from protocols.transport.keys import generate_shared
from tests.support.parquet_folders import in_a_folder
from tests.support.partitioned_sites import MODEL, SILENT, Outcomes, divide, predict_both, train_both
from tests.support.processes import Command

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'opboost[dask]'")
pytest.importorskip("xgboost", reason="XGBoost is not installed: pip install 'opboost[dask]'")

if TYPE_CHECKING:
    from distributed import Client


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A cluster that runs already, to which parties connect by its scheduler's address."""
    import distributed

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as running,
        distributed.Client(running) as found,
    ):
        yield found


@pytest.fixture
def parties(sites: Any, client: Client) -> Any:
    """The bank's customers in three files and the shop's in two, both on workers that are there already."""
    for site, n_parts in ((sites.bank, 3), (sites.shop, 2)):
        divide(site, n_parts)
        site.run.update(engine="dask", data="parts", dask={"scheduler": client.scheduler.address}, timeout=5)
    sites.bank.run["model"] = MODEL
    return sites


def auc(parties: Any, scores: pd.DataFrame) -> float:
    known = parties.bank.table.set_index("id")["y"]
    return float(roc_auc_score(known.loc[scores["id"]], scores["prediction"]))


def log_lines(site: Any, run_id: str = "spring") -> list[dict[str, Any]]:
    path = site.path / "runs" / run_id / "log.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def rank_digests(site: Any, run_id: str) -> list[tuple[str, str]]:
    kinds = ("offer", "rank chunk")
    lines = log_lines(site, run_id)
    return [(line["kind"], line["sha256"]) for line in lines if line["event"] == "sent" and line["kind"] in kinds]


def charges(site: Any) -> Counter[str]:
    database = sqlite3.connect(site.path / "runs" / "ledger.sqlite")
    rows = database.execute("SELECT fields FROM lines").fetchall()
    database.close()
    return Counter(json.loads(fields)["kind"] for (fields,) in rows)


def n_chunks(site: Any) -> int:
    return sum(line.get("kind") == "rank chunk" for line in log_lines(site))


def wait_for(happened: Callable[[], Any], process: Command) -> None:
    end = time.monotonic() + 90
    while not happened():
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


def test_processes_survive_a_killed_worker_and_a_killed_driver_and_pay_once(
    parties: Any, outcomes: Outcomes, client: Client
) -> None:
    """The shop has a cluster of its own, and is killed while its ranks are drawn; then the bank loses a worker.

    Records lie in any order, and are compared again by whoever is started again.
    """
    parties.shop.run["dask"] = {"workers": 1, "partition_rows": 250}
    for site in (parties.bank, parties.shop):
        site.run |= {"data": "shuffled", "align": {"method": "psi"}}
        in_a_folder(site.table.sample(frac=1, random_state=5), site.path / "shuffled", 3)
    # Two processes and a cluster start meanwhile.
    for site in (parties.bank, parties.shop):
        site.run["wait"] = 90
    # The bank waits as long for the shop to come back; it starts when the shop knocks.
    parties.bank.run["wait"] = 5
    parties.bank.run["model"] = MODEL | {"n_estimators": 60, "learning_rate": 0.05}
    blocks = parties.shop.path / "runs" / "partitions"
    started = []

    def start(site: Any, command: str) -> Command:
        started.append(site.start(command))
        return started[-1]

    try:
        run, shop = parties.bank.write(), start(parties.shop, "party-b")
        wait_for(lambda: "connecting" in events(parties.shop), shop)

        def lose_the_shop() -> None:
            with pytest.raises(PeerLost, match="while this party was collecting ranks"):
                train_active(run, insecure=False, terminal=SILENT)

        def kill_the_shop() -> None:
            wait_for(lambda: list(blocks.rglob("0.orders.npy")), shop)
            shop.kill()
            shop.communicate()

        assert set(outcomes({"bank": lose_the_shop, "shop": kill_the_shop}).values()) == {None}
        assert charges(parties.shop) == {"opened": 1, "charge": 2}

        parties.bank.run["wait"] = 90
        bank, shop = start(parties.bank, "party-a"), start(parties.shop, "party-b")
        wait_for(lambda: n_chunks(parties.bank) == 2, bank)
        victim = next(iter(client.run(os.getpid).values()))
        os.kill(victim, signal.SIGKILL)
        ends = [process.communicate(timeout=100) for process in (bank, shop)]
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.communicate()
    assert [bank.returncode, shop.returncode] == [0, 0], ends
    client.wait_for_workers(2, timeout=30)
    assert victim not in client.run(os.getpid).values()
    found = charges(parties.shop)
    assert (found["charge"], found["stored"], found["tests"]) == (2, 4, 1)
    assert list(blocks.glob("work.*")) == []


def test_a_run_of_partitions_is_as_good_as_one_machines_on_the_same_ranks(parties: Any, outcomes: Outcomes) -> None:
    parties.bank.run["report"] = True
    assert train_both(parties, outcomes) == {}
    assert "(routed)" not in (report := parties.bank.run_folder / "report.html").read_text()
    scored = predict_both(parties, outcomes)
    assert scored["shop"] == 400, scored
    # What left while records were scored is in the report, too.
    assert "wrote 400 predictions (routed)" in report.read_text()
    mine = pd.read_parquet(scored["bank"])
    assert mine["id"].tolist() == sorted(parties.bank.table["id"])
    assert sorted(path.name for path in scored["bank"].iterdir()) == [f"00000{p}.parquet" for p in range(3)]
    found = predict_both(parties, outcomes, mode="desensitized", out=parties.bank.path / "noised")
    assert pd.read_parquet(found["bank"])["status"].tolist() == ["ok"] * 400

    listed = parties.bank.path / "some.txt"
    listed.write_text("\n".join(mine["id"].sample(50, random_state=1)))
    some = pd.read_parquet(predict_both(parties, outcomes, ids=listed, out=parties.bank.path / "some")["bank"])
    pd.testing.assert_frame_equal(some, mine[mine["id"].isin(some["id"])].reset_index(drop=True))
    assert len(some) == 50
    n_charged = charges(parties.shop)["charge"]

    # A second run: the bank in one piece, the shop with the release of the first, whose files were written again.
    for site in (parties.bank, parties.shop):
        site.run["run_id"] = "summer"
    for part in (parties.shop.path / "parts").iterdir():
        pd.read_parquet(part).to_parquet(part, index=False)
    whole = {"engine": None, "data": "data.csv"}
    parties.bank.run = {k: v for k, v in (parties.bank.run | whole).items() if k not in ("engine", "dask")}
    assert train_both(parties, outcomes) == {}
    assert rank_digests(parties.shop, "summer") == rank_digests(parties.shop, "spring") != []
    assert charges(parties.shop)["charge"] == n_charged
    theirs = pd.read_csv(predict_both(parties, outcomes)["bank"])
    assert auc(parties, mine) == pytest.approx(auc(parties, theirs), abs=0.02)
    assert auc(parties, mine) > 0.8
    for site, n_rows in ((parties.bank, 400), (parties.shop, 400)):
        assert json.loads((site.path / "runs" / "spring" / "meta.json").read_text())["n_rows"] == n_rows
        assert [path.name for path in (site.path / "runs").rglob("work.*")] == []


def test_a_folder_of_a_model_with_base_margins_is_scored_like_one_file(parties: Any, outcomes: Outcomes) -> None:
    """The passive party had answered when the margins were missed."""
    bank = parties.bank
    bank.table = bank.table.assign(m=np.linspace(-1, 1, len(bank.table)))
    bank.schema["base_margin"] = "m"
    bank.run["model"] = MODEL | {"engine": "native"}
    for part in (bank.path / "parts").iterdir():
        part.unlink()
    (bank.path / "parts").rmdir()
    divide(bank, 3)
    assert train_both(parties, outcomes) == {}
    scored = predict_both(parties, outcomes)
    assert scored["shop"] == 400, scored
    bank.run["data"] = "data.csv"
    whole = predict_both(parties, outcomes, out=bank.path / "whole.csv")
    pd.testing.assert_frame_equal(pd.read_csv(scored["bank"]), pd.read_csv(whole["bank"]))


@pytest.mark.parametrize("bank_is_whole", [False, True])
def test_held_out_records_of_partitions_are_left_out_and_answered(
    parties: Any, outcomes: Outcomes, bank_is_whole: bool
) -> None:
    for site in (parties.bank, parties.shop):
        site.run["held_out"] = 0.2
    if bank_is_whole:
        for key in ("engine", "dask"):
            del parties.bank.run[key]
        parties.bank.run["data"] = "data.csv"
    assert train_both(parties, outcomes) == {}
    found = json.loads((parties.bank.path / "runs/spring/held_out.json").read_text())
    (path,) = (parties.shop.path / "runs").glob("held_out.*.json")
    key = bytes.fromhex(json.loads(path.read_text())["seed"])
    n_held = int((places_of(key, pd.Index(parties.bank.table["id"], dtype=object)) < 0.2).sum())
    assert (found["metric"], found["n_rows"], found["reason"]) == ("auc", n_held, "")
    assert found["joint"] > found["alone"] > 0.4
    for site in (parties.bank, parties.shop):
        assert json.loads((site.path / "runs/spring/meta.json").read_text())["n_rows"] == 400 - n_held
    (told,) = [line for line in log_lines(parties.shop) if line["event"] == "held out"]
    assert (told["records"], told["answered"]) == (n_held, n_held)
    assert list((parties.shop.path / "runs").rglob("work.*")) == []


@pytest.mark.parametrize(("method", "bank_is"), [("psi", "partitioned"), ("psi-dh", "whole"), ("hashed", "native")])
def test_records_in_any_order_are_compared_on_a_cluster_as_on_one_machine(
    parties: Any, outcomes: Outcomes, method: str, bank_is: str
) -> None:
    """The model is that of the same records sorted by hand, and known to be common."""
    bank, shop = parties.bank, parties.shop
    model = MODEL if bank_is == "partitioned" else {**MODEL, "engine": "xgboost" if bank_is == "whole" else "native"}
    if bank_is == "whole":
        bank.run = {key: value for key, value in bank.run.items() if key not in ("engine", "dask")} | {
            "data": "data.csv"
        }
    bank.table, shop.table = bank.table.sort_values("id").iloc[60:], shop.table.sort_values("id").iloc[:370]
    common = sorted(set(bank.table["id"]) & set(shop.table["id"]))
    both = (bank, shop)
    if method == "hashed":
        generate_shared(bank.path / "keys", "both")
        (shop.path / "keys" / "both.shared").write_text((bank.path / "keys" / "both.shared").read_text())
        (shop.path / "keys" / "both.shared").chmod(0o600)
    models = []
    for run_id in ("listed", "compared"):
        for site in both:
            site.run |= {"run_id": run_id, "held_out": 0.2, "answers": "cells"}
            rows = site.table[site.table["id"].isin(common)] if run_id == "listed" else site.table
            site.run["data"] = run_id if site.run.get("engine") else "data.csv"
            in_a_folder(rows.sample(frac=1, random_state=3), site.path / run_id, 3)
            align = {"method": method, "duplicates": "drop"} | (
                {"secret": "keys/both.shared"} if method == "hashed" else {}
            )
            site.run["align"] = {"method": "prealigned", "duplicates": "drop"} if run_id == "listed" else align
        if method == "psi-dh":
            shop.run["align"] |= {"prepared": "ids.prepared"} if run_id == "compared" else {}
        bank.run["model"] = model
        kept, bank.table = bank.table, bank.table[bank.table["id"].isin(common)] if run_id == "listed" else bank.table
        assert train_both(parties, outcomes) == {}
        bank.table = kept
        models.append((bank.path / "runs" / run_id / "model.json").read_text())
        meta = json.loads((shop.path / "runs" / run_id / "meta.json").read_text())
        told = [line for line in log_lines(shop, run_id) if line["event"] == "held out"]
        assert meta["n_rows"] + told[0]["records"] == len(common) == 310
    assert models[0] == models[1]
    assert [line["n_reused"] for line in log_lines(shop, "compared") if line["event"] == "released"] == [2]
    # One machine answers for the folder until it is told to stop.
    assert list((bank.path / "runs").rglob("work.*")) == []


@pytest.mark.parametrize("changed_values", ["keep", "redraw"])
def test_a_change_of_values_shows_in_the_next_run_unless_first_draws_are_kept(
    parties: Any, outcomes: Outcomes, changed_values: str
) -> None:
    parties.shop.run["changed_values"] = changed_values
    assert train_both(parties, outcomes) == {}
    for part in sorted((parties.shop.path / "parts").iterdir()):
        frame = pd.read_parquet(part)
        frame.assign(spend=100 - frame["spend"], visits=50 - frame["visits"]).to_parquet(part, index=False)
    for site in (parties.bank, parties.shop):
        site.run["run_id"] = "summer"
    assert train_both(parties, outcomes) == {}
    is_kept = changed_values == "keep"
    assert (rank_digests(parties.shop, "summer") == rank_digests(parties.shop, "spring")) == is_kept
    assert charges(parties.shop)["charge"] == (2 if is_kept else 4)
    if is_kept:
        drawn = [line for line in log_lines(parties.shop, "summer") if line["event"] == "released"]
        assert [(line["n_drawn"], line["n_reused"]) for line in drawn] == [(0, 2)]
        found = predict_both(parties, outcomes, mode="desensitized")
        assert found["shop"] == 400, found
        assert charges(parties.shop)["charge"] == 2


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "keys": ("bank", {"align": {"keys": ["id"]}}, "`align.keys` are for a table in memory"),
    "rows-held-out": ("bank", {"model": {"validation_fraction": 0.2}}, "holds no rows out: leave model.validation_fra"),
    "two-clusters": ("shop", {"dask": {"scheduler": "tcp://h:1", "workers": 2}}, "either the address of a scheduler"),
    "section-alone": ("shop", {"engine": None, "dask": {"workers": 2}}, "goes with `engine: dask`"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_partitions_cannot_do_is_refused_when_the_run_file_is_read(sites: Any, case: str) -> None:
    party, changes, sentence = REFUSED[case]
    site = getattr(sites, party)
    site.run.update({"engine": "dask", **changes})
    with pytest.raises(ConfigError, match=sentence):
        read_run(site.write(), ActiveRun if party == "bank" else PassiveRun)


def test_tables_that_are_no_partitions_are_refused_before_anybody_is_asked(parties: Any, client: Client) -> None:
    shop, bank = parties.shop, parties.bank

    def train(site: Any) -> None:
        {"bank": train_active, "shop": train_passive}[site.party](site.write(), insecure=False, terminal=SILENT)

    (shop.path / "empty").mkdir()
    shop.run["data"] = "empty"
    with pytest.raises(TableError, match="that holds no Parquet files"):
        train(shop)
    shop.run["data"] = "parts"
    first, second = sorted((shop.path / "parts").iterdir())
    pd.read_parquet(first).to_parquet(shop.path / "parts" / "2.parquet", index=False)
    with pytest.raises(TableError, match="repeats an id in 200 of 600 rows") as found:
        train(shop)
    assert "k0" not in str(found.value)
    first.unlink()
    pd.read_parquet(second).assign(spend=5.0).to_parquet(second, index=False)
    (shop.path / "parts" / "2.parquet").unlink()
    with pytest.raises(TableError, match="constant columns spend"):
        train(shop)
    bank.schema["columns"]["town"] = {"kind": "unordered", "categories": ["north", "south"]}
    with pytest.raises(ConfigError, match=r"run.yaml: .*town have none"):
        train(bank)
    assert not (shop.path / "runs" / "ledger.sqlite").exists()


def test_a_file_is_divided_for_the_time_of_the_run_and_two_doctors_agree(parties: Any, outcomes: Outcomes) -> None:
    """The bank's customers lie in three files, the shop's in one, which it divides by itself."""
    parties.shop.run.update(data="data.csv")
    parties.shop.run["dask"]["partition_rows"] = 150
    for site in (parties.bank, parties.shop):
        site.run["answers"] = "cells"
    # Whatever would be protected little, or without a limit, is warned of.
    parties.shop.run |= {
        "desensitize": {"whole_range": 0.5},
        "ledger": {"budget": {"epsilon": 1}},
        "allow_routed": True,
    }
    bank, shop = parties.bank.write(), parties.shop.write()
    found = outcomes({"bank": lambda: examine(bank), "shop": lambda: examine(shop)})
    told = {name: {one.check: one for one in findings} for name, findings in found.items()}
    for name, n_parts in (("bank", 3), ("shop", 3)):
        assert [one for one in found[name] if one.status is not Status.OK] == []
        assert f"400 records in {n_parts} partitions" in told[name]["partitions"].sentence
    assert "2 columns to draw" in told["shop"]["ledger"].sentence
    assert not (parties.shop.path / "runs").exists()


def test_a_run_that_has_released_before_sends_the_same_or_nothing(parties: Any, outcomes: Outcomes) -> None:
    assert train_both(parties, outcomes) == {}
    meta = parties.shop.run_folder / "meta.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"finished": None}))
    shop = parties.shop
    for ledger in (shop.path / "runs").glob("ledger*"):
        ledger.unlink()
    bank = parties.bank
    bank.run_folder.rename(bank.path / "runs" / "before")
    failed = train_both(parties, outcomes)
    assert isinstance(failed["shop"], LedgerError)
    assert "this run has released before" in str(failed["shop"])
    assert charges(shop)["charge"] == 0


def test_parties_that_disagree_draw_nothing(parties: Any, outcomes: Outcomes) -> None:
    parties.bank.run["passive"][0]["agreed"] = {"mechanism": "adj"}
    failed = train_both(parties, outcomes)
    assert isinstance(failed["bank"], Disagreement)
    assert charges(parties.shop)["charge"] == 0
    assert not (parties.shop.path / "runs" / "partitions").exists()


def test_a_party_without_dask_is_told_what_to_install(sites: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sites.bank.run["engine"] = "dask"
    path = sites.bank.write()
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"pip install 'opboost\[dask\]'"):
        train_active(path, insecure=False, terminal=SILENT)
    told = [finding for finding in examine(path, wait_s=0.1) if finding.status is Status.PROBLEM]
    assert [finding.check for finding in told] == ["settings"]
    assert "is not installed" in told[0].sentence


def test_values_out_of_bounds_are_told(parties: Any, outcomes: Outcomes) -> None:
    parties.shop.schema["columns"]["spend"] |= {"upper": 50, "outside": "clip"}
    n_outside = int((parties.shop.table["spend"] > 50).sum())
    assert train_both(parties, outcomes) == {}
    told = [line["message"] for line in log_lines(parties.shop) if line["event"] == "clipped"]
    assert told == [f"{n_outside} values of spend lay outside the public bounds and were moved to them"]


def test_ranks_that_arrived_do_not_come_again(
    parties: Any, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: Any, **__: Any) -> None:
        raise WorkersLost("the cluster lost the workers")

    with monkeypatch.context() as patch:
        patch.setattr("parties.cluster.active_preparation.train_on_partitions", lose)
        failed = train_both(parties, outcomes)
    assert isinstance(failed["bank"], WorkersLost)
    assert "its workers stopped" in str(failed["shop"])
    assert "the cluster" not in str(failed["shop"])
    sent = rank_digests(parties.shop, "spring")
    assert [kind for kind, _ in sent] == ["offer", "rank chunk", "rank chunk"]
    assert not (parties.bank.path / "runs" / "partitions").exists()
    assert train_both(parties, outcomes) == {}
    assert rank_digests(parties.shop, "spring") == [*sent, sent[0]]
    assert charges(parties.shop) == {"opened": 1, "charge": 2, "stored": 4, "reuse": 2, "tests": 1}


def test_a_cluster_that_gives_up_ends_in_a_sentence(client: Client) -> None:
    from distributed.comm.core import CommClosedError

    with (
        pytest.raises(WorkersLost, match="gave it up: CommClosedError"),
        cluster(DaskSection(scheduler=client.scheduler.address)),
    ):
        raise CommClosedError


def test_a_scheduler_without_workers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import distributed

    monkeypatch.setattr("parties.cluster.dask_cluster.START_WAIT_S", 2)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as none,
        pytest.raises(WorkersLost, match="has no worker"),
        cluster(DaskSection(scheduler=none.scheduler_address)),
    ):
        pass


def test_other_records_are_refused_before_anything_is_drawn(parties: Any, outcomes: Outcomes) -> None:
    part = parties.shop.path / "parts" / "1.parquet"
    table = pd.read_parquet(part)
    table.assign(id=[*table["id"].iloc[:-1], "k9999"]).to_parquet(part, index=False)
    failed = train_both(parties, outcomes)
    for name in ("bank", "shop"):
        assert isinstance(failed[name], Disagreement)
        assert "it has 400 records, this party 400; both need the same ids" in str(failed[name])
    assert charges(parties.shop)["charge"] == 0


def spoil(site: Any, column: str, value: object) -> None:
    """Another cell in the last row of the last partition."""
    part = max((site.path / "parts").iterdir())
    table = pd.read_parquet(part)
    table[column] = table[column].astype(object).where(table.index < len(table) - 1, value)
    table.to_parquet(part, index=False)


def events(site: Any) -> list[str]:
    return [line["event"] for line in log_lines(site)]


def test_cells_are_checked_before_a_training_whichever_partition_they_are_in(parties: Any) -> None:
    bank, shop = parties.bank, parties.shop
    shop.schema["columns"]["spend"] |= {"outside": "refuse"}
    spoil(shop, "spend", 101.0)
    spoil(bank, "age", 1e39)
    with pytest.raises(DataError, match=r"1 value outside its public bounds"):
        train_passive(shop.write(), insecure=False, terminal=SILENT)
    with pytest.raises(DataError, match=r"XGBoost needs cells of column 'age' of magnitude 3.40282e\+38 at most"):
        train_active(bank.write(), insecure=False, terminal=SILENT)
    assert events(bank) == events(shop) == []


@pytest.mark.parametrize("allow_routed", [True, False])
def test_cells_are_checked_before_a_prediction_whether_they_are_asked_about_or_not(
    parties: Any, outcomes: Outcomes, allow_routed: bool
) -> None:
    """A request about some records must not be a question whether another one fits the schema."""
    assert train_both(parties, outcomes) == {}
    bank, shop = parties.bank, parties.shop
    shop.run["allow_routed"] = allow_routed
    before = [events(site) for site in (bank, shop)]
    for column in ("spend", "visits"):
        spoil(shop, column, np.inf)
    with pytest.raises(DataError, match="1 infinite cell;"):
        serve_passive(shop.write(), data=None, insecure=False, terminal=SILENT)
    spoil(bank, "age", np.inf)
    ask = {"data": None, "ids": None, "mode": "desensitized", "out": None}
    with pytest.raises(DataError, match="1 infinite cell;"):
        predict_active(bank.write(), insecure=False, terminal=SILENT, **ask)
    with pytest.raises(RunFolderError, match="cannot be written"):
        predict_active(bank.write(), insecure=False, terminal=SILENT, **ask | {"out": bank.path / ("n" * 300)})
    spoil(bank, "age", 20.0)
    part = bank.path / "parts" / "2.parquet"
    pd.read_parquet(part).assign(id=1.5).to_parquet(part, index=False)
    with pytest.raises(TableError, match="neither text nor whole numbers"):
        predict_active(bank.write(), insecure=False, terminal=SILENT, **ask)
    assert [events(site) for site in (bank, shop)] == before


def test_listed_records_of_one_file_train_whatever_is_constant_among_them(parties: Any, outcomes: Outcomes) -> None:
    for site in (parties.bank, parties.shop):
        listed = site.table["id"].isin([f"k{i:04}" for i in range(40)])
        site.run.update(data="data.csv", ids="ids.txt")
        (site.path / "ids.txt").write_text("\n".join(site.table["id"][listed]))
        for column, value in (("y", 1), ("age", 30.0), ("spend", 5.0), ("visits", np.nan)):
            if column in site.table:
                site.table[column] = site.table[column].where(~listed, value)
    assert train_both(parties, outcomes) == {}
    parties.shop.run["run_id"] = "autumn"
    parties.shop.table = parties.shop.table.assign(spend=5.0)
    with pytest.raises(TableError, match="constant columns spend"):
        train_passive(parties.shop.write(), insecure=False, terminal=SILENT)


def _changes_before(monkeypatch: pytest.MonkeyPatch, module: str, name: str, change: Callable[[], object]) -> None:
    """Have something happen when a function of a module is called, before that."""
    called = getattr(import_module(module), name)

    def later(*arguments: Any, **options: Any) -> Any:
        change()
        return called(*arguments, **options)

    monkeypatch.setattr(f"{module}.{name}", later)


@pytest.mark.parametrize("held_out", [0.0, 0.2])
@pytest.mark.parametrize("vanishes", [False, True])
def test_no_model_is_made_of_partitions_that_changed_meanwhile(
    parties: Any, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch, held_out: float, vanishes: bool
) -> None:
    """The active party's labels are others when its trees grow than those that the run began with."""
    part = parties.bank.path / "parts" / "1.parquet"

    def change() -> None:
        table = pd.read_parquet(part)
        part.unlink()
        if not vanishes:
            table.assign(y=1 - table["y"]).to_parquet(part, index=False)

    for site in (parties.bank, parties.shop):
        site.run["held_out"] = held_out
    moment = "partitions_without" if held_out else "cut_into_partitions"
    _changes_before(monkeypatch, "parties.cluster.active_preparation", moment, change)
    found = train_both(parties, outcomes)
    assert isinstance(found["bank"], TableError)
    assert ("cannot be read" if vanishes else "was changed while it was in use") in str(found["bank"])
    assert not (parties.bank.path / "runs/spring/model.json").exists()


def test_no_record_is_released_that_is_not_listed_though_a_file_is_written_anew(
    parties: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has as many records as before, in another order, since those to release were chosen."""
    shop, part = parties.shop, parties.shop.path / "parts" / "0.parquet"
    (shop.path / "ids.txt").write_text("\n".join(sorted(shop.table["id"])[:100]))
    shop.run |= {"ids": "ids.txt", "align": {"method": "psi"}}

    def change() -> None:
        pd.read_parquet(part).iloc[::-1].to_parquet(part, index=False)

    _changes_before(monkeypatch, "parties.cluster.arrangement", "select", change)
    with pytest.raises(TableError, match=r"0\.parquet was changed while it was in use\. Nothing was sent"):
        train_passive(shop.write(), insecure=False, terminal=SILENT)
    assert not (shop.path / "runs" / "ledger.sqlite").exists()


def test_no_predictions_are_made_of_partitions_that_changed_meanwhile(
    parties: Any, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers about one record would be another one's."""
    assert train_both(parties, outcomes) == {}
    part = parties.bank.path / "parts" / "1.parquet"

    def change() -> None:
        table = pd.read_parquet(part)
        if not table["id"].is_monotonic_decreasing:
            table.iloc[::-1].to_parquet(part, index=False)

    _changes_before(monkeypatch, "parties.cluster.prediction_batches", "write_bits", change)
    found = predict_both(parties, outcomes)
    assert isinstance(found["bank"], TableError)
    assert "1.parquet was changed while it was in use" in str(found["bank"])
    assert not list((parties.bank.path / "runs/spring").glob("predictions*"))
