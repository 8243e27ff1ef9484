"""Files that a party finds damaged, absent or replaced when it starts: a sentence that names the file, no traceback."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parties.errors import EXPECTED_ERRORS
from parties.jobs.answer_vertical import serve_passive
from parties.jobs.predict_vertical import predict_active
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from tests.support.kept_runs import before_concluding

SILENT = Terminal()

GARBAGE = {
    "empty": b"",
    "cut": b'{"format": "opboost-',
    "not text": b"\xff\xfe\x00\x80" * 9,
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "an empty object": b"{}",
    "a list of lists": b'[[1], [null], ["a"]]',
    "an object of objects": b'{"shop": {"columns": 1}, "seed": [], "records": 3, "orders": 4, "confirmed": 5}',
    "nested too deep": b"[" * 100_000,
}


def call(site: Any, what: str) -> BaseException | None:
    """The error in which a party's start ends, with nobody at the other end."""
    path, options = site.write(), {"insecure": False, "terminal": SILENT}
    calls: dict[tuple[str, str], Any] = {
        ("bank", "train"): lambda: train_active(path, **options),
        ("shop", "train"): lambda: train_passive(path, **options),
        ("bank", "predict"): lambda: predict_active(path, data=None, ids=None, mode="routed", out=None, **options),
        ("shop", "predict"): lambda: serve_passive(path, data=None, **options),
    }
    try:
        calls[site.party, what]()
    except BaseException as error:
        return error
    return None


def garble(site: Any, name: str, what: str) -> list[str]:
    """Every kind of garbage in a file, one after the other; returns what went wrong."""
    path, faults = site.run_folder / name, []
    kept = site.path / "kept"
    shutil.copytree(site.run_folder, kept)
    for kind, content in GARBAGE.items():
        path.write_bytes(content)
        error = call(site, what)
        if not isinstance(error, EXPECTED_ERRORS) or not str(error).isprintable():
            faults.append(f"{name}, {kind}: {error!r}")
        shutil.rmtree(site.run_folder)
        shutil.copytree(kept, site.run_folder)
    shutil.rmtree(kept)
    return faults


@pytest.fixture
def finished(sites: Any, outcomes: Any) -> Any:
    """Both sides have trained; nobody waits long for the other one."""
    sites.bank.run["correct_noise"] = sites.shop.run["share_thresholds"] = True
    _train(sites, outcomes)
    return sites


@pytest.fixture
def unconfirmed(sites: Any, outcomes: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The bank has saved its model and stopped before the shop could confirm."""
    with before_concluding(monkeypatch):
        _train(sites, outcomes)
    return sites


def _train(sites: Any, outcomes: Any) -> None:
    bank, shop = sites.bank.write(), sites.shop.write()
    outcomes(
        {
            "bank": lambda: train_active(bank, insecure=False, terminal=SILENT),
            "shop": lambda: train_passive(shop, insecure=False, terminal=SILENT),
        }
    )
    for site in (sites.bank, sites.shop):
        site.run["wait"] = 0.05


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_a_garbled_note_of_the_start_is_told(unconfirmed: Any, party: str) -> None:
    assert garble(getattr(unconfirmed, party), "meta.json", "train") == []


def test_a_garbled_run_file_is_told(unconfirmed: Any) -> None:
    assert garble(unconfirmed.bank, "config.yaml", "train") == []


def test_a_journal_of_which_both_copies_are_garbled_is_told(unconfirmed: Any) -> None:
    (unconfirmed.bank.run_folder / "journal" / "journal.copy").write_bytes(b"{")
    assert garble(unconfirmed.bank, "journal/journal.json", "train") == []


def flip(path: Path) -> None:
    """Change one bit in the middle, where the file may still be read."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [flip, halve])
def test_a_damaged_offer_or_journal_is_asked_for_again_or_read_from_its_copy(
    unconfirmed: Any, outcomes: Any, damage: Callable[[Path], None]
) -> None:
    for site in (unconfirmed.bank, unconfirmed.shop):
        site.run["wait"] = 10
    journal = unconfirmed.bank.run_folder / "journal"
    for path in (journal / "from" / "shop" / "offer", journal / "journal.json", journal / "tests.json"):
        damage(path)
    found = outcomes({"bank": lambda: call(unconfirmed.bank, "train"), "shop": lambda: call(unconfirmed.shop, "train")})
    assert found == {"bank": None, "shop": None}
    log = (unconfirmed.shop.run_folder / "log.txt").read_text()
    assert log.count("0 columns drawn and charged") == 1


def test_garbled_tests_are_told(unconfirmed: Any, outcomes: Any) -> None:
    """They are read when the shop is there and has sent its release again."""
    for site in (unconfirmed.bank, unconfirmed.shop):
        site.run["wait"] = 5
    path = unconfirmed.bank.run_folder / "journal" / "tests.json"
    path.with_suffix(".copy").unlink()
    for kind, content in GARBAGE.items():
        path.write_bytes(content)
        found = outcomes(
            {"bank": lambda: call(unconfirmed.bank, "train"), "shop": lambda: call(unconfirmed.shop, "train")}
        )
        assert all(isinstance(error, EXPECTED_ERRORS) for error in found.values()), (kind, found)
        assert "tests.json" in str(found["bank"]), (kind, found)


@pytest.mark.parametrize(
    ("party", "name"),
    [("bank", "model.json"), ("bank", "guarantee.json"), ("bank", "partners.json"), ("shop", "model.json")],
)
def test_a_garbled_model_is_told(finished: Any, party: str, name: str) -> None:
    assert garble(getattr(finished, party), name, "predict") == []


@pytest.mark.parametrize(("party", "name"), [("bank", "model.json"), ("bank", "partners.json"), ("shop", "model.json")])
def test_an_absent_model_is_told(finished: Any, party: str, name: str) -> None:
    site = getattr(finished, party)
    (site.run_folder / name).unlink()
    error = call(site, "predict")
    assert isinstance(error, EXPECTED_ERRORS)
    assert name in str(error) or "no trained model" in str(error)


@pytest.mark.parametrize("name", ["ledger.sqlite", "ledger.head.json"])
def test_a_garbled_account_is_told_and_nothing_is_sent(sites: Any, outcomes: Any, name: str) -> None:
    _train(sites, outcomes)
    sites.shop.run["run_id"] = "autumn"
    path = sites.shop.path / "runs" / name
    for garbage in GARBAGE.values():
        before = path.read_bytes()
        for beside in path.parent.glob("ledger*-*"):
            beside.unlink()
        path.write_bytes(garbage)
        error = call(sites.shop, "train")
        assert isinstance(error, EXPECTED_ERRORS), (garbage, error)
        assert "Nothing was released" in str(error), (garbage, error)
        path.write_bytes(before)


@pytest.mark.parametrize("party", ["bank", "shop"])
@pytest.mark.parametrize("name", ["run.yaml", "schema.yaml", "data.csv"])
def test_a_garbled_input_is_told(sites: Any, party: str, name: str) -> None:
    site = getattr(sites, party)
    path = site.write()
    train = train_active if party == "bank" else train_passive
    for kind, content in {**GARBAGE, "yaml of tags": b"!!python/object/apply:os.system [true]", "nul": b"\0"}.items():
        site.write()
        (site.path / name).write_bytes(content)
        with pytest.raises(EXPECTED_ERRORS) as refusal:
            train(path, insecure=False, terminal=SILENT)
        assert name in str(refusal.value), kind
        assert not site.run_folder.exists(), kind


@pytest.mark.parametrize("party", ["bank", "shop"])
@pytest.mark.parametrize("place", ["file", "below a file", "no folder of ours"])
def test_a_run_folder_that_cannot_be_written_is_told(sites: Any, party: str, place: str, tmp_path: Path) -> None:
    site = getattr(sites, party)
    (tmp_path / "file").write_text("")
    folder = {
        "file": tmp_path / "file",
        "below a file": tmp_path / "file" / "run",
        "no folder of ours": Path("/proc/x"),
    }
    site.run["folder"] = str(folder[place])
    error = call(site, "train")
    assert isinstance(error, EXPECTED_ERRORS), error
    assert str(folder[place]) in str(error)
    assert "cannot be written" in str(error)
