"""Owners of a chain as processes of their own: run files, keys and tables on disk, sockets on loopback."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from opboost.trees.model_file import load_model
from parties.config.chain import OwnerRun
from parties.config.reader_section import LABEL_TERM
from parties.config.reading import read_run, read_schema
from parties.config.record_runs import charge_of
from parties.errors import ChainBroken, ConfigError, Disagreement, RunFolderError, TreesDiffer
from parties.horizontal.chain.checkpoint import ChainCheckpoint
from parties.horizontal.chain.job import ChainJob
from parties.horizontal.chain.turns import run_chain_owner
from parties.jobs.train_chain import train_owner
from parties.jobs.train_vertical import Terminal
from parties.ledger.model_ledger import worker_ledger
from parties.runs.run_folder import RunFolder
from parties.storage.twice_kept import write_twice
from protocols.errors import PeerAborted
from protocols.messages.horizontal import TakeTurns
from protocols.messages.message import Message
from protocols.messages.vertical import Done
from tests.support.addresses import free_addresses
from tests.support.chained_clinics import NAMES, SCHEMA, Clinics, leaves
from tests.support.chains import Meddling, splitting
from tests.support.processes import finish


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_processes_train_the_model_of_a_simulation_and_report_it(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    clinics.runs["w1"]["report"] = True
    ends = finish(*(clinics.start(name) for name in NAMES))
    assert [code for code, _, _ in ends] == [0] * 3, ends
    for name in NAMES:
        assert leaves(load_model(clinics.folder(name) / "model.json")) == clinics.simulated()
        assert clinics.read(name, "meta.json")["finished"]
    promise = clinics.read("w1", "guarantee.json")
    assert promise["epsilon"] <= 2.0
    assert (promise["delta"], promise["is_secure"], promise["certified"]) == (0.0, False, False)
    report = clinics.read("w1", "report.json")
    assert report["kind"] == "records"
    assert report["account"]["queries"][0]["kind"] == "parts of the records, dealt by coins"
    assert {one["kind"] for one in report["history"]["outgoing"]} == {"take turns", "pass tree", "done"}
    page = (clinics.folder("w1") / "report.html").read_text()
    assert "NOT FOR RELEASE" in page
    assert str(tmp_path) not in page
    said: list[str] = []
    clinics.runs["w1"]["wait"] = 1
    train_owner(clinics.write("w1"), insecure=False, terminal=Terminal(say=said.append))
    assert any("its trees are there for owners that need them and come within 1 s" in one for one in said)
    assert clinics.read("w1", "meta.json")["unconfirmed"] == []


@pytest.mark.parametrize("is_damaged", [False, True])
def test_finished_owners_serve_one_that_was_killed_before_it_read_their_digests_or_has_lost_trees(
    tmp_path: Path, is_damaged: bool
) -> None:
    clinics = Clinics(tmp_path, inprivate={"n_rounds": 1})
    for name in NAMES:
        clinics.runs[name]["wait"] = 10
    assert not any(isinstance(one, BaseException) for one in clinics.together(*NAMES).values())
    (clinics.folder("w1") / "confirmed.json").unlink()
    (clinics.folder("w1") / "model.json").unlink()
    (clinics.folder("w1") / "meta.json").write_text(json.dumps({**clinics.read("w1", "meta.json"), "finished": None}))
    if is_damaged:
        for path in (clinics.folder("w1") / "turns").glob("0002.*"):
            path.write_text("{")
    ends = finish(*(clinics.start(name) for name in NAMES))
    assert [code for code, _, _ in ends] == [0] * 3, ends
    assert ChainCheckpoint(RunFolder(clinics.folder("w1"))).confirmed == {"w0", "w2"}
    assert all(clinics.read(name, "meta.json")["unconfirmed"] == [] for name in NAMES)
    models = [leaves(load_model(clinics.folder(name) / "model.json")) for name in NAMES]
    assert models[0] == models[1] == models[2]


def test_a_killed_owner_is_named_and_the_run_goes_on_without_a_second_tree(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, inprivate={"n_rounds": 30, "max_depth": 2})
    for name in NAMES:
        # All meet within it, and those that are left wait in vain as long.
        clinics.runs[name] |= {"timeout": 2, "wait": 6}
    processes = {name: clinics.start(name) for name in NAMES}
    wait_for(lambda: (clinics.folder("w1") / "turns" / "0007.json").exists())
    os.kill(processes["w1"].pid, signal.SIGKILL)
    ends = dict(zip(NAMES, finish(*processes.values()), strict=True))
    assert ends["w1"][0] == -signal.SIGKILL
    for name in ("w0", "w2"):
        assert ends[name][0] == 3, ends
        assert "w1" in ends[name][2]
        assert "turn" in ends[name][2]
    assert any("it goes on where it stopped" in ends[name][2] for name in ("w0", "w2")), ends
    before = {path.name: path.read_text() for path in (clinics.folder("w1") / "turns").glob("*.json")}
    found = clinics.together(*NAMES)
    assert not any(isinstance(one, BaseException) for one in found.values()), found
    models = [leaves(load_model(clinics.folder(name) / "model.json")) for name in NAMES]
    assert models[0] == models[1] == models[2]
    assert len(models[0]) == 90
    after = {name: (clinics.folder("w1") / "turns" / name).read_text() for name in before}
    assert after == before


def test_owners_whose_owner_was_killed_begin_again_in_their_own_process(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, inprivate={"n_rounds": 30, "max_depth": 2})
    for name in NAMES:
        clinics.runs[name]["timeout"] = 30
    processes = {name: clinics.start(name) for name in NAMES}
    wait_for(lambda: (clinics.folder("w1") / "turns" / "0007.json").exists())
    os.kill(processes["w1"].pid, signal.SIGKILL)
    finish(processes["w1"])
    ends = finish(clinics.start("w1"), processes["w0"], processes["w2"])
    assert [code for code, _, _ in ends] == [0] * 3, ends
    models = [leaves(load_model(clinics.folder(name) / "model.json")) for name in NAMES]
    assert models[0] == models[1] == models[2]
    assert len(models[0]) == 90
    assert "begins again" in (clinics.folder("w0") / "log.jsonl").read_text()


def test_an_owner_killed_while_the_last_tree_grows_is_met_again_by_those_that_have_compared_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two others have noted each other by then; only it and the last one lacked the tree."""
    clinics = Clinics(tmp_path, order=["w2", "w1", "w0"], inprivate={"n_rounds": 1, "max_depth": 2})
    is_gone = threading.Event()

    def slowly(job: ChainJob, channels: dict[str, Any], **options: Any) -> Any:
        def wait(turn: int, trees: str) -> None:
            job.before_turn(turn, trees)
            assert job.party != "w0" or is_gone.wait(60)

        return run_chain_owner(replace(job, before_turn=wait), channels, **options)

    monkeypatch.setattr("parties.jobs.train_chain.run_chain_owner", slowly)
    killed, ends = clinics.start("w1"), dict[str, Any]()
    others = threading.Thread(target=lambda: ends.update(clinics.together("w0", "w2")), daemon=True)
    others.start()
    wait_for(lambda: all((clinics.folder(name) / "turns" / "0001.json").exists() for name in NAMES))
    os.kill(killed.pid, signal.SIGKILL)
    finish(killed)
    is_gone.set()
    wait_for(lambda: "w0" in ChainCheckpoint(RunFolder(clinics.folder("w2"))).confirmed)
    ((code, _, said),) = finish(clinics.start("w1"))
    assert code == 0, said
    others.join(30)
    assert not others.is_alive()
    assert all(clinics.read(name, "meta.json")["unconfirmed"] == [] for name in NAMES), ends
    models = [leaves(load_model(clinics.folder(name) / "model.json")) for name in NAMES]
    assert models[0] == models[1] == models[2]


def test_owners_whom_another_one_sent_different_trees_end_with_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clinics = Clinics(tmp_path)

    def lie(job: ChainJob, channels: dict[str, Any], **options: Any) -> Any:
        change = splitting("w0", "w2", job.checkpoint, job.recipe)
        return run_chain_owner(job, {peer: Meddling(one, change) for peer, one in channels.items()}, **options)

    processes = [clinics.start(name) for name in ("w0", "w1")]
    monkeypatch.setattr("parties.jobs.train_chain.run_chain_owner", lie)
    clinics.together("w2")
    ends = finish(*processes)
    assert [code for code, _, _ in ends] == [5, 5], ends
    for (_, _, said), name, other in zip(ends, ("w0", "w1"), ("w1", "w0"), strict=True):
        assert f"the trees of {other} are not those of {name}: one of the owners sent, handed on" in said
        assert not (clinics.folder(name) / "model.json").exists()
        assert len(list((clinics.folder(name) / "turns").glob("*.json"))) == 6
        assert clinics.read(name, "meta.json")["finished"] is None


def test_labels_that_mean_another_number_are_named_and_nothing_is_charged(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    clinics.with_words(w1="well")
    found = clinics.together(*NAMES)
    # Two that meet tell it each other; a third one may hear that these do not agree before it has met both.
    said = {name: str(error) for name, error in found.items()}
    assert all(isinstance(one, Disagreement | PeerAborted) and "do not agree" in str(one) for one in found.values())
    assert any(f"the owners do not agree: {LABEL_TERM}: w1 has " in said[name] for name in ("w0", "w2"))
    assert re.search(rf"the owners do not agree: {LABEL_TERM}: w[02] has ", said["w1"])
    assert not any((clinics.folder(name) / "turns" / "0000.json").exists() for name in NAMES)
    for name in NAMES:
        run = read_run(clinics.write(name), OwnerRun)
        with worker_ledger(run.ledger.path, run.ledger.budget) as ledger:
            assert ledger.charges() == ()


def test_labels_that_owners_spell_differently_are_listed_by_all(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, inprivate={"n_rounds": 1})
    expected = clinics.simulated()
    clinics.with_words()
    clinics.own_keys = {name: {"positive": ["ill", "sick", "1"]} for name in NAMES}
    clinics.own_keys["w2"] = {"positive": [1, "SICK", "ill"]}
    for name, words in (("w1", {"ill": "Sick", "well": "fit"}), ("w2", {"ill": 1, "well": 0})):
        path = tmp_path / name / "data.csv"
        pd.read_csv(path).replace({"y": words}).to_csv(path, index=False)
    found = clinics.together(*NAMES)
    assert not any(isinstance(one, BaseException) for one in found.values()), found
    assert leaves(load_model(clinics.folder("w1") / "model.json")) == expected


def split(clinics: Clinics) -> tuple[Path, Any]:
    """Finish a run, and leave two owners that have other trees and have heard only the third one, with their models.

    Gives the file of the tree that one of them has otherwise, and what was in it.
    """
    assert not any(isinstance(one, BaseException) for one in clinics.together(*NAMES).values())
    turn = clinics.folder("w0") / "turns" / "0002.json"
    kept = json.loads(turn.read_text())[turn.name]
    write_twice(turn, {**kept, "values": [-value for value in kept["values"]]})
    for name, other in (("w0", "w1"), ("w1", "w0")):
        meta = clinics.read(name, "meta.json")
        (clinics.folder(name) / "meta.json").write_text(json.dumps({**meta, "unconfirmed": [other]}))
        (clinics.folder(name) / "confirmed.json").write_text('{"names": ["w2"], "differing": []}')
    return turn, kept


def test_finished_owners_that_find_other_trees_when_they_meet_again_keep_no_model(tmp_path: Path) -> None:
    """As they are left by an owner that splits them, and a broken connection between the two."""
    clinics = Clinics(tmp_path, inprivate={"n_rounds": 1})
    turn, kept = split(clinics)
    for found in (clinics.together("w0", "w1") for _ in range(2)):
        for name, other in (("w0", "w1"), ("w1", "w0")):
            assert isinstance(found[name], TreesDiffer), found
            assert f"the trees of {other} are not those of {name}: " in str(found[name])
            with pytest.raises(RunFolderError, match="holds no trained model; train the run first"):
                RunFolder(clinics.folder(name)).load_ensemble()
    # The tree is put back as it was.
    write_twice(turn, kept)
    assert not any(isinstance(one, BaseException) for one in clinics.together("w0", "w1").values())
    models = [leaves(load_model(clinics.folder(name) / "model.json")) for name in NAMES]
    assert models[0] == models[1] == models[2]


@pytest.mark.parametrize("withheld", [Done, TakeTurns])
def test_owners_that_know_of_other_trees_keep_no_model_whatever_a_third_one_withholds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, withheld: type[Message]
) -> None:
    clinics, goes_on = Clinics(tmp_path, inprivate={"n_rounds": 1}), threading.Event()
    split(clinics)
    for name in NAMES:
        clinics.runs[name]["wait"] = 10
        if withheld is TakeTurns:
            (clinics.folder(name) / "confirmed.json").unlink()

    def withhold(peer: str, message: Message) -> Message:
        assert not isinstance(message, withheld) or goes_on.wait(60)
        return message

    def withholding(job: ChainJob, channels: dict[str, Any], **options: Any) -> Any:
        meddling = {peer: Meddling(one, withhold) for peer, one in channels.items()}
        return run_chain_owner(job, meddling, **options)

    processes = [clinics.start(name) for name in ("w0", "w1")]
    monkeypatch.setattr("parties.jobs.train_chain.run_chain_owner", withholding)
    splitter = threading.Thread(target=clinics.together, args=("w2",), daemon=True)
    splitter.start()
    for name, other in (("w0", "w1"), ("w1", "w0")):
        checkpoint = ChainCheckpoint(RunFolder(clinics.folder(name)))
        wait_for(lambda checkpoint=checkpoint, other=other: other in checkpoint.differing)  # type: ignore[misc]
        assert not (clinics.folder(name) / "model.json").exists()
    assert [code for code, _, _ in finish(*processes)] == [5, 5]
    goes_on.set()
    splitter.join(60)
    assert not splitter.is_alive()


def test_a_model_that_came_back_beside_a_noted_difference_is_withdrawn_before_anybody_is_met(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, inprivate={"n_rounds": 1})
    assert not any(isinstance(one, BaseException) for one in clinics.together(*NAMES).values())
    (clinics.folder("w0") / "confirmed.json").write_text('{"names": ["w2"], "differing": ["w1"]}')
    clinics.runs["w0"]["wait"] = 60
    killed = clinics.start("w0")
    wait_for(lambda: clinics.read("w0", "meta.json")["finished"] is None)
    os.kill(killed.pid, signal.SIGTERM)
    finish(killed)
    assert not (clinics.folder("w0") / "model.json").exists()


def put_back(clinics: Clinics) -> None:
    """Finish a run, and leave all folders as before the second turn."""
    assert not any(isinstance(one, BaseException) for one in clinics.together(*NAMES).values())
    for name in NAMES:
        for path in (clinics.folder(name) / "turns").iterdir():
            if name != "w0" or path.stem != "0000":
                path.unlink()
        (clinics.folder(name) / "confirmed.json").unlink()
        meta = clinics.read(name, "meta.json")
        (clinics.folder(name) / "meta.json").write_text(json.dumps({**meta, "finished": None}))


@pytest.mark.parametrize("lies", [False, True])
def test_a_run_folder_put_back_as_before_a_turn_draws_the_same_tree_or_none(tmp_path: Path, lies: bool) -> None:
    """The others say that they hold no tree of this owner either; they may pass another one before its turn."""
    clinics = Clinics(tmp_path, inprivate={"n_rounds": 1})
    put_back(clinics)
    before = leaves(load_model(clinics.folder("w1") / "model.json"))
    if lies:
        turn = clinics.folder("w0") / "turns" / "0000.json"
        kept = json.loads(turn.read_text())[turn.name]
        write_twice(turn, {**kept, "values": [-value for value in kept["values"]]})
    found = clinics.together(*NAMES)
    if lies:
        assert isinstance(found["w1"], RunFolderError), found
        assert "the tree of turn 2 of run 'spring' was drawn before, after other trees than" in str(found["w1"])
        assert not list((clinics.folder("w1") / "turns").glob("0001.*"))
    else:
        assert not any(isinstance(one, BaseException) for one in found.values()), found
        assert leaves(load_model(clinics.folder("w1") / "model.json")) == before


def test_a_run_folder_put_back_under_another_version_draws_no_tree(tmp_path: Path) -> None:
    """The ledger knows the trees before it; from the same coins another version may draw another one."""
    clinics = Clinics(tmp_path, inprivate={"n_rounds": 1})
    put_back(clinics)
    coins = clinics.folder("w1") / "coins.json"
    write_twice(coins, {**json.loads(coins.read_text())[coins.name], "version": "0.0.9"})
    found = clinics.together(*NAMES)
    assert isinstance(found["w1"], RunFolderError), found
    assert "began under version 0.0.9 of opboost" in str(found["w1"])
    assert not list((clinics.folder("w1") / "turns").glob("0001.*"))


def test_an_interrupted_run_is_taken_up_where_owners_are_at_other_addresses(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, inprivate={"n_rounds": 1})
    put_back(clinics)
    for name, address in zip(NAMES, free_addresses(len(NAMES)), strict=True):
        clinics.runs[name]["listen"] = address
        for run in clinics.runs.values():
            for other in run["owners"]:
                if other["name"] == name and "connect" in other:
                    other["connect"] = address
    found = clinics.together(*NAMES)
    assert not any(isinstance(one, BaseException) for one in found.values()), found
    shutil.copy(tmp_path / "w1" / "keys" / "w1.public", tmp_path / "w0" / "other.public")
    clinics.runs["w0"]["owners"][0]["public_key"] = "other.public"
    assert "owners.0.public_key was ../w1/keys/w1.public, is other.public" in str(clinics.together("w0")["w0"])


def test_an_owner_over_its_budget_sends_nothing(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    clinics.runs["w2"]["ledger"] = {"epsilon": 1.0}
    found = clinics.together("w2")
    assert "which is over the budget of 1. Nothing was sent" in str(found["w2"])
    assert not (clinics.folder("w2") / "turns").exists()
    assert not (clinics.folder("w2") / "log.jsonl").read_text().count('"sent"')


def test_a_tree_whose_noise_can_be_drawn_again_costs_without_end(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    run = read_run(clinics.write("w0"), OwnerRun)
    of = run.training.recipe_for(read_schema(run.table_schema)[0])
    assert charge_of(run, of).epsilon == math.inf
    clinics.runs["w0"] |= {"ledger": {"epsilon": 30.0}}
    assert "this run costs inf, which is over the budget of 30" in str(clinics.together("w0")["w0"])
    del clinics.runs["w0"]["seed"]
    assert charge_of(read_run(clinics.write("w0"), OwnerRun), of).epsilon == of.guarantee(is_secure=True).epsilon <= 2.0


def test_a_run_is_taken_up_with_its_own_rows_and_folder_or_not_at_all(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, inprivate={"n_rounds": 1})
    assert not any(isinstance(one, BaseException) for one in clinics.together(*NAMES).values())
    for name in NAMES:
        meta = clinics.read(name, "meta.json")
        (clinics.folder(name) / "meta.json").write_text(json.dumps({**meta, "finished": None}))
    frame = pd.read_csv(tmp_path / "w0" / "data.csv")
    frame.iloc[::2].to_csv(tmp_path / "w0" / "data.csv", index=False)
    found = clinics.together(*NAMES)
    assert isinstance(found["w0"], RunFolderError)
    assert "the beginning of a run on other rows" in str(found["w0"])
    frame.to_csv(tmp_path / "w0" / "data.csv", index=False)
    clinics.folder("w0").rename(tmp_path / "away")
    assert "the same charge does not pay for other answers" in str(clinics.together("w0")["w0"])
    shutil.rmtree(clinics.folder("w0"))
    (tmp_path / "away").rename(clinics.folder("w0"))
    for name in NAMES:
        # Those that have finished wait in vain: w0 has noted that all have the same trees, and does not meet them.
        clinics.runs[name]["wait"] = 2
    assert not any(isinstance(one, BaseException) for one in clinics.together(*NAMES).values())


def test_another_order_is_named_and_can_be_mended_under_the_same_name(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, inprivate={"n_rounds": 1})
    clinics.runs["w1"]["training"] = {**clinics.training, "order": ["w1", "w0", "w2"]}
    found = clinics.together(*NAMES)
    named = [str(found[name]) for name in NAMES if isinstance(found[name], Disagreement)]
    assert named, "the first to hear all others refuses; those it leaves may hear only that it left"
    assert all(isinstance(one, Disagreement | ChainBroken | PeerAborted) for one in found.values())
    assert all("order: w" in one and "has ['w" in one and "this party ['w" in one for one in named)
    del clinics.runs["w1"]["training"]
    assert not any(isinstance(one, BaseException) for one in clinics.together(*NAMES).values())


@pytest.mark.parametrize(
    ("training", "run", "words"),
    [
        ({"order": ["w0", "w1"]}, {}, "must list the others of `training.order`"),
        ({"order": ["w0", "w1", "w1", "w2"]}, {}, "every owner once"),
        ({"objective": "reg:squarederror"}, {}, "public `label_bounds` go with"),
        ({"label_bounds": [0, 1]}, {}, "public `label_bounds` go with"),
        ({"inprivate": {"n_rounds": 0}}, {}, "greater than or equal to 1"),
        ({}, {"listen": None, "owners": [{"name": "w1"}, {"name": "w2"}]}, "needs an address to `listen`"),
    ],
)
def test_a_run_file_that_cannot_work_is_refused_with_its_fault_in_words(
    tmp_path: Path, training: dict[str, Any], run: dict[str, Any], words: str
) -> None:
    clinics = Clinics(tmp_path, **training)
    clinics.runs["w0"] |= run
    with pytest.raises(ConfigError, match="run.yaml: .*" + words):
        read_run(clinics.write("w0"), OwnerRun)


def test_an_owner_notes_in_its_own_log_how_many_cells_are_read_as_other(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    columns = {**SCHEMA["columns"], "size": {"kind": "unordered", "categories": ["0", "1"], "other": True}}
    clinics.own_keys = {name: {"columns": columns} for name in NAMES}
    for name in NAMES:
        frame = pd.read_csv(tmp_path / name / "data.csv")
        frame.assign(size=(3 * frame["size"]).astype(int)).to_csv(tmp_path / name / "data.csv", index=False)
    ends = clinics.together(*NAMES)
    assert not [end for end in ends.values() if isinstance(end, BaseException)], ends
    for name in NAMES:
        n_other = int((pd.read_csv(tmp_path / name / "data.csv")["size"] == 2).sum())
        log = (clinics.folder(name) / "log.txt").read_text()
        assert log.count("read as `other`") == 1
        assert f"column size: {n_other} of 80 cells are read as `other`" in log
