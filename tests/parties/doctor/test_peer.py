"""Checks with the peer: an answer is compared, silence skips the check, and a refusal is a problem."""

from __future__ import annotations

import pytest

from parties.config.reading import read_run
from parties.config.vertical import ActiveRun, PassiveRun
from parties.doctor.check_result import Checklist, Finding, Status
from parties.doctor.peer import _compare, _note_unanswered, ask_active, ask_passive
from protocols.errors import PeerLost, PeerRefused, ProtocolError, UnexpectedMessage
from protocols.messages.vertical import Hello, Role, Task, Terms
from protocols.transport.memory import memory_pair
from tests.support.outcomes import outcomes_of
from tests.support.sites import Sites

BANK = Hello(role=Role.ACTIVE, party="bank", run_id="spring", task=Task.CHECK, n_rows=4, plan=Terms(tests=1))
SHOP = BANK.model_copy(update={"role": Role.PASSIVE, "party": "shop", "plan": Terms()})


def test_agreement_is_told_and_every_difference_is_a_problem_of_its_own() -> None:
    channel, _ = memory_pair("bank", "shop")
    checks = Checklist()
    _compare(channel, None, BANK, SHOP, checks)
    assert [one.status for one in checks.findings] == [Status.OK]
    other = SHOP.model_copy(update={"run_id": "autumn", "party": "mall"})
    checks = Checklist()
    _compare(channel, None, BANK, other, checks)
    assert [one.status for one in checks.findings] == [Status.PROBLEM] * 2


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (PeerLost("shop did not come within 5 s"), Status.SKIPPED),
        (PeerRefused("shop expects another key"), Status.PROBLEM),
        (UnexpectedMessage("too early"), Status.PROBLEM),
    ],
)
def test_an_absent_peer_is_no_problem_and_one_that_refuses_is(error: ProtocolError, status: Status) -> None:
    checks = Checklist()
    _note_unanswered(error, checks)
    assert [one.status for one in checks.findings] == [status]


def asked(sites: Sites, *parties: str) -> dict[str, list[Finding]]:
    bank, shop = read_run(sites.bank.write(), ActiveRun), read_run(sites.shop.write(), PassiveRun)
    lists = {"bank": Checklist(), "shop": Checklist()}
    calls = {
        "bank": lambda: ask_passive(bank, {"shop": BANK}, None, lists["bank"], wait_s=3 if len(parties) > 1 else 0.2),
        "shop": lambda: ask_active(shop, SHOP, None, lists["shop"], wait_s=3 if len(parties) > 1 else 0.2),
    }
    found = outcomes_of({name: calls[name] for name in parties})
    assert set(found.values()) == {None}
    return {name: lists[name].findings for name in parties}


def test_two_doctors_meet_over_a_socket(sites: Sites) -> None:
    found = asked(sites, "bank", "shop")
    assert [one.status for findings in found.values() for one in findings] == [Status.OK] * 2


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_alone_each_is_told_that_only_its_side_was_checked(sites: Sites, party: str) -> None:
    (finding,) = asked(sites, party)[party]
    assert finding.status is Status.SKIPPED
    assert finding.sentence.startswith("only this side was checked: ")
