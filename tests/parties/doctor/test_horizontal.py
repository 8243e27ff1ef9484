"""The doctor of horizontal roles: a sound run is sound, agreement shows in one digest, and a budget is never spent."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from parties.config.horizontal import WorkerRun
from parties.config.reading import read_run
from parties.doctor.check_result import Finding, Status, is_sound
from parties.doctor.horizontal import examine_rows
from parties.errors import ConfigError
from parties.ledger.model_ledger import worker_ledger
from parties.reports.horizontal_plan_facts import record_plan
from tests.support.clinics import Clinics
from tests.support.sites import Sites


@pytest.fixture
def clinics(tmp_path: Path) -> Clinics:
    return Clinics(tmp_path)


def examined(clinics: Clinics, name: str) -> dict[str, Finding]:
    return {one.check: one for one in examine_rows(clinics.write(name), wait_s=0.2)}


def test_all_who_agree_see_one_digest(clinics: Clinics) -> None:
    digests = {examined(clinics, name)["terms"].sentence for name in ("hub", "w0", "w1")}
    assert len(digests) == 1
    clinics.training = {**clinics.training, "epsilon": 1.5}
    assert examined(clinics, "w0")["terms"].sentence not in digests


def test_trees_are_those_of_the_model_not_the_first_questions(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, recipe="recommended", recommended={"records": 900, "n_estimators": 8, "max_depth": 2})
    n_trees = record_plan(path := clinics.write("hub")).n_trees
    assert clinics.recipe().n_trees > n_trees
    found = {one.check: one for one in examine_rows(path, wait_s=0.2)}
    assert f"`training` ({n_trees} trees)" in found["terms"].sentence


def test_workers_of_other_public_keys_see_another_digest(clinics: Clinics) -> None:
    clinics.outdate("w0", "w1")
    digests = {name: examined(clinics, name)["terms"].sentence for name in ("hub", "w0", "w1", "w2")}
    assert digests["hub"] == digests["w1"] == digests["w2"] != digests["w0"]


def test_without_usable_keys_nobody_is_asked(clinics: Clinics) -> None:
    (clinics.root / "w0" / "keys" / "w1.public").unlink()
    found = examined(clinics, "w0")
    assert found["keys"].status is Status.PROBLEM
    assert found["peer"].status is Status.SKIPPED
    assert "terms" not in found


def test_nobody_listens_yet_and_nothing_is_charged(clinics: Clinics) -> None:
    found = examined(clinics, "w0")
    assert is_sound(list(found.values())), found
    assert found["peer"].status is Status.SKIPPED
    assert found["seed"].status is Status.WARNING
    assert not list((clinics.root / "w0").rglob("ledger*"))
    assert found["budget"].status is Status.WARNING
    assert "nothing limits what all runs together spend" in found["budget"].sentence
    assert not {"data", "budget"} & examined(clinics, "hub").keys()


def test_a_run_over_the_budget_is_a_problem_before_it_begins(clinics: Clinics) -> None:
    del clinics.runs["w0"]["seed"]
    clinics.runs["w0"]["ledger"] = {"epsilon": 0.1}
    assert examined(clinics, "w0")["budget"].status is Status.PROBLEM


def test_a_worker_that_has_the_model_needs_no_budget_for_it(clinics: Clinics) -> None:
    """The doctor called for more than `worker` does, which charges nothing there."""
    del clinics.runs["w0"]["seed"]
    clinics.runs["w0"]["ledger"] = {"epsilon": 0.1}
    run = read_run(clinics.write("w0"), WorkerRun)
    with worker_ledger(run.ledger.path, run.ledger.budget):
        pass
    assert examined(clinics, "w0")["budget"].status is Status.PROBLEM
    (run.run_folder).mkdir(parents=True)
    (run.run_folder / "model.json").write_text("{}")
    assert "budget" not in examined(clinics, "w0")


def test_an_account_behind_a_link_that_leads_nowhere_is_a_problem(clinics: Clinics) -> None:
    (disk := clinics.root / "disk").mkdir()
    path = clinics.root / "w0" / "people.sqlite"
    clinics.runs["w0"]["ledger"] = {"path": path.name}
    clinics.write("w0")
    path.symlink_to(disk / path.name)
    found = examined(clinics, "w0")["ledger"]
    assert found.status is Status.PROBLEM
    assert "is a link to" in found.sentence
    assert not list(disk.iterdir())


def test_an_account_whose_head_alone_is_there_is_a_problem(clinics: Clinics) -> None:
    run = read_run(clinics.write("w0"), WorkerRun)
    with worker_ledger(run.ledger.path, run.ledger.budget):
        pass
    run.ledger.path.unlink()
    found = examined(clinics, "w0")["ledger"]
    assert found.status is Status.PROBLEM
    assert "is not there although its head is" in found.sentence


def test_what_is_left_is_told_of_every_limit(clinics: Clinics) -> None:
    del clinics.runs["w0"]["seed"]
    clinics.runs["w0"]["ledger"] = {"delta": 0.01}
    left = examined(clinics, "w0")["ledger"].sentence
    assert "of the budget is left after it" in left
    assert ", delta 0.00" in left
    assert "no limit" not in left
    assert "budget" not in examined(clinics, "w0")


def test_a_taken_address_is_a_problem(clinics: Clinics) -> None:
    import socket

    address = clinics.runs["hub"]["listen"]
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        assert examined(clinics, "hub")["address"].status is Status.PROBLEM
        found = examined(clinics, "w0")["peer"]
        assert found.status is Status.SKIPPED
        assert "the keys do not match" in found.sentence


def test_a_vertical_run_file_is_refused(sites: Sites) -> None:
    with pytest.raises(ConfigError):
        examine_rows(sites.bank.write())


@pytest.mark.parametrize("is_parted", [False, True])
def test_how_many_cells_are_read_as_other_is_told(clinics: Clinics, is_parted: bool) -> None:
    clinics.with_categories()
    clinics.schema["columns"]["size"] = {"kind": "unordered", "categories": ["0", "1"], "other": True}
    frame = pd.read_csv(clinics.root / "w0" / "data.csv")
    if is_parted:
        (parts := clinics.root / "w0" / "parts").mkdir()
        for number in range(2):
            frame.iloc[number::2].to_parquet(parts / f"{number}.parquet")
        clinics.runs["w0"]["data"] = "parts"
    found = examined(clinics, "w0")["column size"]
    assert found.status is Status.WARNING
    assert f"{int((frame['size'] == 2).sum())} of 80 cells are read as `other`" in found.sentence
