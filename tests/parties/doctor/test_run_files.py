"""Checks of any run file: keys that cannot be meant, a folder in every state, and budgets that protect nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from parties.config.reading import read_run
from parties.config.vertical import ActiveRun
from parties.doctor.check_result import Checklist, Status
from parties.doctor.run_files import check_and_ask, check_folder, check_keys, check_protection
from parties.runs.run_folder import RunFolder
from protocols.transport.keys import KeyPair
from tests.support.sites import Sites


def keys_of(sites: Sites, *, insecure: bool = False) -> tuple[bool, Status, str]:
    checks = Checklist()
    are_usable, _ = check_keys(read_run(sites.bank.write(), ActiveRun), checks, insecure=insecure)
    (found,) = checks.findings
    return are_usable, found.status, found.sentence


def folder_of(path: Path) -> tuple[Status, str]:
    checks = Checklist()
    check_folder(read_run(path, ActiveRun), path, checks)
    return checks.findings[0].status, checks.findings[0].sentence


def test_sound_keys_are_named_by_their_owners(sites: Sites) -> None:
    assert keys_of(sites) == (True, Status.OK, "this party's, and those of shop")
    assert keys_of(sites, insecure=True)[:2] == (True, Status.WARNING)


def test_plain_text_is_for_loopback_alone(sites: Sites) -> None:
    sites.bank.run["listen"] = "tcp://192.0.2.1:5555"
    assert keys_of(sites, insecure=True)[:2] == (False, Status.PROBLEM)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"passive": [{"name": "shop", "public_key": "keys/bank.public"}]}, "a peer's public key is this party's own"),
        (
            {"passive": [{"name": name, "public_key": "keys/shop.public"} for name in ("shop", "post")]},
            "two peers have the same public key",
        ),
        ({"secret_key": "keys/none.secret"}, "none.secret"),
    ],
)
def test_keys_that_cannot_be_meant_are_a_problem(sites: Sites, change: dict[str, object], words: str) -> None:
    sites.bank.run |= change
    are_usable, status, sentence = keys_of(sites)
    assert (are_usable, status) == (False, Status.PROBLEM)
    assert words in sentence


def test_a_folder_is_free_begun_finished_or_somebody_elses(sites: Sites) -> None:
    path = sites.bank.write()
    folder = RunFolder(read_run(path, ActiveRun).run_folder)

    def found() -> tuple[Status, str]:
        status, sentence = folder_of(path)
        return status, sentence.removeprefix(f"{folder.path} ")

    assert found() == (Status.OK, "is free")
    folder.create(path, party="bank", role="active")
    folder.mark_release()
    (folder.path / "journal").mkdir()
    assert found()[0] in (Status.OK, Status.PROBLEM)
    folder.finish(n_rows=1)
    assert found() == (Status.WARNING, "holds this run, which is finished: starting it does nothing")
    (folder.path / "meta.json").unlink()
    assert found()[0] is Status.PROBLEM


@pytest.mark.parametrize(("place", "leads_to"), [("runs", "nowhere"), ("runs/spring", "nowhere"), ("runs", "runs")])
def test_a_link_that_leads_nowhere_is_no_place_for_a_folder(sites: Sites, place: str, leads_to: str) -> None:
    path = sites.bank.write()
    link = sites.bank.path / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(leads_to)
    assert folder_of(path) == (Status.PROBLEM, f"{link} cannot be written: it is no folder, or may not be written to")
    link.unlink()
    link.symlink_to((sites.bank.path / "elsewhere").absolute())
    (sites.bank.path / "elsewhere").mkdir()
    assert folder_of(path)[0] is Status.OK


def test_a_file_that_may_be_executed_is_no_place_for_a_folder(sites: Sites) -> None:
    path = sites.bank.write()
    (sites.bank.path / "runs").touch(0o700)
    assert folder_of(path)[0] is Status.PROBLEM


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_budgets_that_protect_nothing_are_a_warning_where_they_are_asked_for(sites: Sites, is_asked_for: bool) -> None:
    sites.bank.run["no_privacy"] = is_asked_for
    checks = Checklist()
    check_protection(read_run(sites.bank.write(), ActiveRun), checks)
    assert [one.status for one in checks.findings] == [Status.WARNING] * is_asked_for


@pytest.mark.parametrize(("has_keys", "has_job"), [(True, True), (True, False), (False, True)])
def test_peers_are_asked_only_if_nothing_is_wrong_here(sites: Sites, has_keys: bool, has_job: bool) -> None:
    if not has_keys:
        del sites.bank.run["secret_key"]
    asked: list[KeyPair | None] = []
    job: Callable[[], Callable[[KeyPair | None], None] | None] = lambda: asked.append if has_job else None  # noqa: E731
    checks = Checklist()
    check_and_ask(read_run(sites.bank.write(), ActiveRun), job, checks, insecure=False)
    is_asked = has_keys and has_job
    assert len(asked) == is_asked
    assert ("peer" in {one.check for one in checks.findings}) is not is_asked
