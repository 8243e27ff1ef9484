"""Runs that align their records, as processes of their own: killed and started again, they align again and go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from parties.doctor.check_result import Status
from parties.doctor.vertical import examine
from parties.errors import RunFolderError
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.storage.twice_kept import copies
from parties.vertical import held_out
from tests.support.processes import FORKS

CHUNK_ROWS = 40
LIMIT_S = 60

# How long a party waits for one that is killed; all of them start at once.
WAIT_S = 2


def take_part(role: str, path: str, behind: str, count: int, errors: str, all_started: Any) -> None:
    """Run one party in this process, which kills itself when it has noted a message so many times."""
    from parties.jobs.train_vertical import Terminal, train_active, train_passive
    from parties.runs.run_log import RunLog
    from parties.session import drawn_key
    from parties.vertical import rank_sender

    auditor, remaining = RunLog._auditor, [count]

    def watched(log: RunLog, event: str, peer: str) -> Any:
        note = auditor(log, event, peer)

        def noted(kind: str, frames: Sequence[Any]) -> None:
            note(kind, frames)
            remaining[0] -= f"{event} {kind}" == behind
            if remaining[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        return noted

    if behind:
        RunLog._auditor = watched  # type: ignore[method-assign]
    rank_sender.CHUNK_ROWS = CHUNK_ROWS
    # The same records are held out in every test, so that models can be compared.
    own = SimpleNamespace(token_hex=lambda n_bytes: role.encode().hex().ljust(2 * n_bytes, "0"))
    drawn_key.secrets = own  # type: ignore[assignment]
    train = train_active if role == "active" else train_passive
    all_started.wait(LIMIT_S)
    try:
        train(Path(path), insecure=False, terminal=Terminal())
    except Exception as error:
        Path(errors).write_text(f"{type(error).__name__}: {error}")
        raise SystemExit(1) from None


def run(*sites: Any, victim: str = "", behind: str = "", count: int = 1) -> dict[str, str]:
    """Run all parties once; returns how each ended: nothing to say, "killed", or its error."""
    processes, all_started = {}, FORKS.Barrier(len(sites))
    for site in sites:
        (site.path / "errors.txt").unlink(missing_ok=True)
        wait = site.run["wait"]
        if victim:
            site.run["wait"] = WAIT_S
        arguments = (site.run["role"], str(site.write()), behind if site.party == victim else "", count)
        site.run["wait"] = wait
        processes[site.party] = FORKS.Process(
            target=take_part, args=(*arguments, str(site.path / "errors.txt"), all_started), daemon=True
        )
    for process in processes.values():
        process.start()
    ends = {}
    for site in sites:
        process = processes[site.party]
        process.join(LIMIT_S)
        assert process.exitcode is not None, f"{site.party} is still running after {LIMIT_S} s"
        ends[site.party] = {0: "", -signal.SIGKILL: "killed"}.get(process.exitcode) or (
            (site.path / "errors.txt").read_text() if process.exitcode else ""
        )
    return ends


def unaligned(sites: Any, *, corrects: bool = False, **model: Any) -> Any:
    """A bank and a shop with 300 records in common; the same noise and seed in every run."""
    sites.bank.table = sites.bank.table.iloc[60:].reset_index(drop=True)
    known = sites.bank.table["id"].iloc[:40]
    sites.shop.table = sites.shop.table[~sites.shop.table["id"].isin(known)].reset_index(drop=True)
    settings = {"n_estimators": 6, "max_depth": 3, "subsample": 0.7, "validation_fraction": 0.2, "seed": 3}
    sites.bank.run.update(align={"method": "psi"}, held_out=0.2, model=settings | model, correct_noise=corrects)
    sites.shop.run.update(align={"method": "psi"}, held_out=0.2, seed=7, share_thresholds=True)
    return sites


def kept(site: Any) -> dict[str, bytes]:
    names = ["model.json", "guarantee.json", *(["held_out.json", "fit.json"] if site.party == "bank" else [])]
    return {name: (site.run_folder / name).read_bytes() for name in names}


def messages(site: Any, event: str, kind: str) -> list[str]:
    lines = map(json.loads, (site.run_folder / "log.jsonl").read_text().splitlines())
    return [line["sha256"] for line in lines if (line["event"], line.get("kind")) == (event, kind)]


def charges(site: Any) -> Counter[str]:
    database = sqlite3.connect(site.path / "runs" / "ledger.sqlite")
    rows = database.execute("SELECT fields FROM lines").fetchall()
    database.close()
    kinds = Counter(json.loads(fields)["kind"] for (fields,) in rows)
    return Counter({kind: kinds[kind] for kind in ("charge", "stored")})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, make_sites: Any) -> Callable[[bool], dict[str, Any]]:
    """What both sides keep of a run that learns through the noise, or does not."""

    @cache
    def found(corrects: bool) -> dict[str, Any]:
        sites = unaligned(make_sites(tmp_path_factory.mktemp("undisturbed")), corrects=corrects)
        assert run(sites.bank, sites.shop) == {"bank": "", "shop": ""}
        return {"bank": kept(sites.bank), "shop": kept(sites.shop), "charges": charges(sites.shop)}

    return found


@pytest.mark.parametrize(
    ("victim", "behind", "count"),
    [
        ("shop", "sent rank chunk", 5),
        ("bank", "received rank chunk", 11),
        ("bank", "received blinded ids", 1),
        ("bank", "received held-out shares", 2),
        ("shop", "received held-out shares", 2),
        ("bank", "sent ask", 1),
        ("shop", "sent answers", 1),
        ("bank", "sent done", 1),
        ("bank", "received done", 1),
        ("shop", "received done", 1),
    ],
)
def test_a_killed_run_aligns_again_and_ends_with_the_same_model_for_one_charge(
    sites: Any, undisturbed: Callable[[bool], dict[str, Any]], victim: str, behind: str, count: int
) -> None:
    # Trees are there already, or held-out records choose what they are grown on.
    corrects = behind.endswith((" done", " ask"))
    unaligned(sites, corrects=corrects)
    first = run(sites.bank, sites.shop, victim=victim, behind=behind, count=count)
    assert first[victim] == "killed"
    # A shop that finished before the bank heard of it does not come again, so the bank's journal waits for it. Whether
    # the last word of a killed bank still left its host decides that, unless the bank has the answer.
    is_alone = not first["shop"]
    assert behind != "received done" or is_alone == (victim == "bank")
    sites.bank.run["wait"] = 1 if is_alone else 20
    assert run(sites.bank, sites.shop) == {"bank": "", "shop": ""}
    assert {"bank": kept(sites.bank), "shop": kept(sites.shop)} == {
        k: undisturbed(corrects)[k] for k in ("bank", "shop")
    }
    assert charges(sites.shop) == undisturbed(corrects)["charges"]
    assert (sites.bank.run_folder / "journal").exists() == is_alone
    # What the bank had kept did not come again: two columns of 240 rows, 40 rows a chunk.
    chunks = messages(sites.bank, "received", "rank chunk")
    assert len(chunks) == len(set(chunks)) + (behind == "received rank chunk")


def test_the_rows_held_out_under_a_seed_that_is_left_open_are_the_same_again(sites: Any) -> None:
    unaligned(sites, seed=None, validation_fraction=0.5, n_estimators=20)
    # Noised labels are drawn once, too.
    sites.bank.run["label_epsilon"] = 1.0
    run(sites.bank, sites.shop, victim="bank", behind="sent split ranks")
    assert run(sites.bank, sites.shop) == {"bank": "", "shop": ""}
    wanted = messages(sites.bank, "sent", "split ranks")
    assert (len(wanted), len(set(wanted))) == (2, 1)


@pytest.fixture
def interrupted(sites: Any) -> Any:
    """A run of which the bank holds some of the ranks."""
    unaligned(sites)
    run(sites.bank, sites.shop, victim="bank", behind="received rank chunk", count=5)
    return sites


def test_other_common_records_than_in_the_beginning_are_refused_on_both_sides(interrupted: Any) -> None:
    common = interrupted.shop.table["id"].isin(interrupted.bank.table["id"])
    interrupted.shop.table = interrupted.shop.table.drop(index=np.flatnonzero(common)[:3]).reset_index(drop=True)
    # A shop that still has its run folder refuses a changed file by itself.
    shutil.rmtree(interrupted.shop.run_folder)
    ends = run(interrupted.bank, interrupted.shop)
    sentence = "297 records are common now, 300 were when this run began: the ids of a party have changed. Bring the"
    assert ends["bank"].startswith(f"Disagreement: {sentence}")
    assert f"bank ended the run while checking the common records: {sentence}" in ends["shop"]
    assert "choose another run_id on all sides. No ranks were sent" in ends["shop"]


def test_a_changed_file_is_refused_before_the_parties_meet_whether_the_record_is_common_or_not(
    interrupted: Any,
) -> None:
    sides = {"bank": (interrupted.bank, interrupted.shop), "shop": (interrupted.shop, interrupted.bank)}
    trains = {"bank": train_active, "shop": train_passive}
    for party, column, value in (
        ("bank", "y", 2),
        ("bank", "id", "new"),
        ("shop", "spend", 50.0),
        ("shop", "id", "new"),
    ):
        site, other = sides[party]
        whole, is_known = site.table, site.table["id"].isin(other.table["id"])
        for is_common in (True, False):
            row = np.flatnonzero(is_known == is_common)[0]
            cell = 1 - whole.loc[row, "y"] if column == "y" else value
            site.table = whole.assign(**{column: whole[column].where(np.arange(len(whole)) != row, cell)})
            before = (site.run_folder / "log.jsonl").read_text()
            with pytest.raises(RunFolderError, match=r"bring them back or choose another run_id\. Nothing was sent"):
                trains[party](site.write(), insecure=False, terminal=Terminal())
            since = (site.run_folder / "log.jsonl").read_text().removeprefix(before)
            assert [json.loads(line)["event"] for line in since.splitlines()] == ["resumed", "failed"]
        site.table = whole


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_a_lost_share_of_the_order_is_refused_and_named(interrupted: Any, party: str) -> None:
    for one in copies(getattr(interrupted, party).run_folder / "order.share"):
        one.unlink()
    ends = run(interrupted.bank, interrupted.shop)
    sentence = (
        "the ranks of shop would travel in another order than when this run began: an order.share in a run folder"
    )
    assert ends["bank"].startswith(f"Disagreement: {sentence}")
    assert sentence in ends["shop"]


def test_of_two_peers_one_that_is_asked_alone_aligns_to_the_records_of_all(sites: Any, tmp_path: Path) -> None:
    unaligned(sites)
    post = type(sites.bank)(
        tmp_path,
        "post",
        "bank",
        {**sites.shop.run, "party": "post", "secret_key": "keys/post.secret"},
        {"id": "id", "columns": {"parcels": {"lower": 0, "upper": 400}}},
    )
    post.table = sites.shop.table[["id"]].iloc[100:].assign(parcels=lambda table: np.arange(len(table)))
    (post.path / "keys/bank.public").write_text((sites.bank.path / "keys/bank.public").read_text())
    (sites.bank.path / "keys/post.public").write_text((post.path / "keys/post.public").read_text())
    sites.bank.run["passive"] = [*sites.bank.run["passive"], {"name": "post", "public_key": "keys/post.public"}]
    parties = (sites.bank, sites.shop, post)
    assert run(*parties, victim="shop", behind="received done")["shop"] == "killed"
    kept = json.loads((sites.bank.run_folder / "journal/journal.json").read_text())["journal.json"]
    assert kept["confirmed"] in ([], ["post"])
    assert (sites.bank.run_folder / "model.json").exists()
    sites.bank.run["wait"] = 3  # for the post, which may have finished
    assert run(*parties) == {"bank": "", "shop": "", "post": ""}
    rows = [json.loads((site.run_folder / "meta.json").read_text())["n_rows"] for site in (sites.bank, sites.shop)]
    common = set(sites.bank.table["id"]) & set(sites.shop.table["id"]) & set(post.table["id"])
    # The key is the same in every test.
    (kept,) = (sites.shop.path / "runs").glob("held_out.*.json")
    places = held_out.places_of(bytes.fromhex(json.loads(kept.read_text())["seed"]), pd.Index(sorted(common)))
    assert rows == [int((places >= 0.2).sum())] * 2
    assert charges(sites.shop)["charge"] == 2


def test_the_doctor_compares_how_records_are_aligned_and_knows_a_store_only_for_common_ones(
    interrupted: Any, outcomes: Any
) -> None:
    bank, shop = interrupted.bank.write(), interrupted.shop.write()
    found = outcomes({"bank": lambda: examine(bank), "shop": lambda: examine(shop)})
    for findings in found.values():
        assert [finding for finding in findings if finding.status is Status.PROBLEM] == []
        assert [finding.status for finding in findings if finding.check == "peer"] == [Status.OK]
    (ledger,) = [f.sentence for f in found["shop"] if (f.check, f.status) == ("ledger", Status.OK)]
    assert "unless they are stored already for the records that turn out to be common" in ledger
    interrupted.shop.run["align"] = {"method": "psi", "duplicates": "first"}
    shop = interrupted.shop.write()
    found = outcomes({"bank": lambda: examine(bank), "shop": lambda: examine(shop)})
    for findings in found.values():
        (difference,) = [f.sentence for f in findings if (f.check, f.status) == ("peer", Status.PROBLEM)]
        assert "psi, duplicates: refuse" in difference
        assert "psi, duplicates: first" in difference
