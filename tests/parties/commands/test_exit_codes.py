"""Exit codes tell a supervisor what it can do, and `--retry` does it."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import opboost.errors
import parties.errors
import protocols.errors
from parties.cli import app
from parties.commands import exit_codes
from parties.commands.exit_codes import ExitCode, exit_code, retrying
from parties.errors import EXPECTED_ERRORS, ConfigError
from parties.session.termination import outlook_after
from protocols.errors import PeerAborted, PeerLost
from tests.support.processes import Command, finish

DOCUMENT = Path(__file__).parents[3] / "docs" / "how-to" / "operate.md"

CODES = {
    1: {"OpBoostError", "PartyError", "ProtocolError", "ConfigError", "TableError", "KeyFileError"}
    | {name for name, kind in vars(opboost.errors).items() if isinstance(kind, type) and issubclass(kind, Exception)},
    3: {"PeerLost", "PeerRestarted", "PeerRefused", "ChainBroken", "WorkersLost", "Unavailable", "TooFewWorkers"},
    4: {"OverBudget"},
    5: {"PeerAborted", "Disagreement", "RecordsRefused", "DecodeError", "VersionMismatch", "UnexpectedMessage"}
    | {"NothingInCommon", "SumRefused", "TreesDiffer"},
    6: {"LedgerError", "LedgerBusy", "RunFolderError"},
}


def test_every_expected_error_has_its_code() -> None:
    kinds = {
        kind
        for module in (opboost.errors, parties.errors, protocols.errors)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, EXPECTED_ERRORS)
    }
    found: dict[int, set[str]] = {}
    for kind in kinds:
        found.setdefault(int(exit_code(kind("a sentence"))), set()).add(kind.__name__)
    assert {code: sorted(names) for code, names in found.items()} == {
        code: sorted(names & {kind.__name__ for kind in kinds}) for code, names in CODES.items()
    }


def test_a_peer_that_was_stopped_or_lost_another_one_is_waited_for_and_one_that_refused_is_not() -> None:
    def heard(error: BaseException) -> PeerAborted:
        return PeerAborted("shop ended the run while greeting", outlook_after(error))

    assert exit_code(heard(parties.errors.Stopped(15))) is ExitCode.PEER_ABSENT
    assert exit_code(heard(PeerLost("post is gone"))) is ExitCode.PEER_ABSENT
    assert exit_code(heard(parties.errors.WorkersLost("a step was given up"))) is ExitCode.PEER_ABSENT
    for error in (parties.errors.OverBudget("x"), ConfigError("x"), parties.errors.Disagreement("no")):
        assert exit_code(heard(error)) is ExitCode.REFUSED


def test_the_document_has_the_codes_of_the_program() -> None:
    shown = {int(code) for code in re.findall(r"^\| (\d) \|", DOCUMENT.read_text(), flags=re.MULTILINE)}
    assert shown == set(ExitCode)


def test_processes_end_with_their_codes(sites: Any) -> None:
    def code(site: Any, command: str, *options: str, **changes: Any) -> tuple[int | None, str]:
        site.run.update(changes)
        ((found, _, said),) = finish(site.start(command, *options), seconds=60)
        assert "Traceback" not in said
        return found, said

    assert code(sites.shop, "party-b", wait=0.5)[0] == 3
    assert code(sites.shop, "party-b", "--fast")[0] == 2
    assert code(sites.shop, "party-b", data="absent.csv")[0] == 1
    ledger = sites.shop.path / "runs" / "ledger.sqlite"
    ledger.chmod(0o644)
    assert code(sites.shop, "party-b", data="data.csv")[0] == 6
    ledger.chmod(0o600)
    sites.shop.run |= {"wait": 20, "ledger": {"budget": {"epsilon": 0.01}}}
    sites.bank.run["passive"][0]["agreed"] = {"mechanism": "local"}
    ends = finish(sites.bank.start("party-a"), sites.shop.start("party-b"))
    assert [end[0] for end in ends] == [5, 5], ends
    sites.bank.run["passive"][0].pop("agreed")
    ends = finish(sites.bank.start("party-a"), sites.shop.start("party-b"))
    assert [end[0] for end in ends] == [5, 4], ends


def test_with_retry_a_job_waits_for_a_peer_and_stops_when_told(sites: Any) -> None:
    sites.shop.run["wait"] = 2
    shop = sites.shop.start("party-b", "--retry")
    try:
        deadline = time.monotonic() + 30
        log = sites.shop.run_folder / "log.txt"
        while not (log.exists() and "could not be reached" in log.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        # A may meet the connection that B has just given up, and begins again, too.
        ends = finish(sites.bank.start("party-a", "--retry"), shop, seconds=60)
        assert [end[0] for end in ends] == [0, 0], ends
        assert "The job is begun again in 1 s" in ends[1][2]
    finally:
        shop.kill()
    (sites.shop.path / "runs").rename(sites.shop.path / "before")
    alone = sites.shop.start("party-b", "--retry")
    time.sleep(1.5)
    assert alone.poll() is None
    alone.send_signal(signal.SIGTERM)
    assert finish(alone, seconds=20)[0][0] == 128 + signal.SIGTERM


def test_only_an_absent_peer_is_a_reason_to_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exit_codes, "FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(exit_codes, "LAST_RETRY_S", 0.002)
    ends: list[Exception | str] = [PeerLost("gone"), PeerLost("gone"), PeerLost("gone"), "done"]
    warned: list[str] = []

    def job() -> str:
        end = ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    assert retrying(job, retry=True, warn=warned.append) == "done"
    assert [text.split("again in ")[1] for text in warned] == ["0.001 s", "0.002 s", "0.002 s"]
    for error, retry in ((ConfigError("wrong"), True), (PeerLost("gone"), False), (ZeroDivisionError(), True)):
        ends.append(error)
        with pytest.raises(type(error)):
            retrying(job, retry=retry, warn=warned.append)
    assert len(warned) == 3


def test_every_command_that_meets_peers_can_be_repeated() -> None:
    import typer

    commands: dict[str, Any] = vars(typer.main.get_command(app))["commands"]
    able = {name for name, one in commands.items() if "--retry" in {o for p in one.params for o in p.opts}}
    assert able == {"party-a", "party-b", "coordinator", "worker", "chain", "predict", "scout"}


def test_a_serving_party_needs_a_run_that_is_trained_and_ends_with_the_code_of_storage(sites: Any) -> None:
    ((code, _, said),) = finish(Command("party-b", str(sites.shop.write()), "--serve"), seconds=60)
    assert (code, "holds no trained model" in said) == (6, True)
