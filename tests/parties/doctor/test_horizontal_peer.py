"""Doctors of horizontal roles compare terms over the wire: with each other, and with runs that wait, which go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parties.config.reader_section import LABEL_TERM
from parties.doctor.check_result import Finding, Status
from parties.doctor.horizontal import examine_rows
from parties.horizontal.first_messages import first_message
from parties.runs.run_folder import RunFolder
from protocols.messages.comparison import Compare
from protocols.messages.horizontal import TakeTurns
from protocols.transport.keys import read_public
from protocols.transport.memory import memory_pair
from tests.support.chained_clinics import Clinics as ChainedClinics
from tests.support.clinics import Clinics


def peers(path: Path, wait_s: float = 8.0) -> list[Finding]:
    return [one for one in examine_rows(path, wait_s=wait_s) if one.check == "peer"]


def beside(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    return thread, found


def test_doctors_of_both_sides_find_what_differs(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    clinics.runs["w1"]["training"] = {**clinics.training, "epsilon": 1.5}
    hub = clinics.write("hub")
    thread, of_hub = beside(lambda: peers(hub, wait_s=2.0))
    agrees, differs = beside(lambda: peers(clinics.write("w0"))), beside(lambda: peers(clinics.write("w1")))
    for one in (thread, agrees[0], differs[0]):
        one.join(30)
    assert [one.status for one in agrees[1][0]] == [Status.OK]
    assert [one.status for one in differs[1][0]] == [Status.PROBLEM]
    assert "epsilon: hub has 2.0, this party 1.5" in differs[1][0][0].sentence
    assert sorted(one.status for one in of_hub[0]) == sorted([Status.OK, Status.PROBLEM, Status.SKIPPED])


def test_doctors_of_both_sides_name_whose_public_key_differs(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    clinics.outdate("w0", "w1")
    hub = clinics.write("hub")
    thread, of_hub = beside(lambda: peers(hub, wait_s=2.0))
    other, of_worker = beside(lambda: peers(clinics.write("w0")))
    for one in (thread, other):
        one.join(30)
    (found,) = of_worker[0]
    assert found.status is Status.PROBLEM
    right, earlier = (read_public(tmp_path / name / "keys" / "w1.public").hex() for name in ("hub", "w0"))
    assert f"do not agree: public key of w1: hub has {right}, this party {earlier}" in found.sentence
    assert f"public key of w1: w0 has {earlier}, this party {right}" in of_hub[0][0].sentence


@pytest.mark.parametrize("positive", ["well", "ill"])
def test_doctors_name_labels_that_mean_another_number(tmp_path: Path, positive: str) -> None:
    clinics = Clinics(tmp_path)
    clinics.with_words(w1=positive)
    thread, of_hub = beside(lambda: peers(clinics.write("hub"), wait_s=4.0))
    others = [beside(lambda name=name: peers(clinics.write(name))) for name in ("w0", "w1", "w2")]
    for one in (thread, *(other for other, _ in others)):
        one.join(30)
    (same,), (found,) = others[0][1][0], others[1][1][0]
    assert same.status is Status.OK
    assert found.status is (Status.OK if positive == "ill" else Status.PROBLEM)
    assert positive == "ill" or found.sentence.startswith(f"hub and this party do not agree: {LABEL_TERM}: hub has ")
    assert not {"ill", "well"} & set(found.sentence.split())
    assert [one.status for one in of_hub[0]].count(Status.PROBLEM) == (0 if positive == "ill" else 1)


def test_doctors_of_a_chain_name_labels_that_mean_another_number(tmp_path: Path) -> None:
    clinics = ChainedClinics(tmp_path)
    clinics.with_words(w2="well")
    thread, of_last = beside(lambda: peers(clinics.write("w2"), wait_s=4.0))
    found = peers(clinics.write("w1"), wait_s=4.0)
    thread.join(30)
    said = [one.sentence for one in found if one.status is Status.PROBLEM]
    assert [one.split(" has ")[0] for one in said] == [f"w2 and this party do not agree: {LABEL_TERM}: w2"]
    assert any(one.sentence.startswith(f"w1 and this party do not agree: {LABEL_TERM}") for one in of_last[0])


def test_runs_that_wait_answer_doctors_of_the_other_side_and_go_on(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    ends = [clinics.in_thread("w0")]
    assert next(one.status for one in peers(clinics.write("hub"), wait_s=4.0)) is Status.OK
    ends.append(clinics.in_thread("hub"))
    assert [one.status for one in peers(clinics.write("w1"))] == [Status.OK]
    for end in (*ends, *(clinics.in_thread(name) for name in ("w1", "w2"))):
        assert isinstance(found := end.get(timeout=60), RunFolder), found


def test_a_doctor_that_left_before_it_was_answered_does_not_end_the_run() -> None:
    near, far = memory_pair("w0", "w1")
    near.send(Compare(party="w0", run_id="spring", terms={}))
    near.send(theirs := TakeTurns(party="w0", run_id="spring", terms={}, n_held=0))
    near.close()
    mine = theirs.model_copy(update={"party": "w1"})
    found = [first_message(far, kind=TakeTurns, mine=mine, is_sent=False) for _ in range(2)]
    assert found == [None, theirs]


def test_a_run_that_is_under_way_is_not_disturbed(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    path = clinics.write("w0")
    with RunFolder(clinics.folder("w0")).locked():
        (found,) = peers(path)
    assert found.status is Status.PROBLEM
    assert "another process works on the run" in found.sentence
