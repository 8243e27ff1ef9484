"""A disk that is full at any file a party writes: a sentence on both sides, nothing half written, and the run goes on
when there is room again."""

from __future__ import annotations

import builtins
import hashlib
import io
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from parties.errors import EXPECTED_ERRORS, ConfigError, LedgerError, RunFolderError
from parties.jobs.answer_vertical import serve_passive
from parties.jobs.predict_vertical import predict_active
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.ledger.release_ledger import Ledger
from parties.runs.run_log import RunLog
from protocols.errors import ProtocolError
from protocols.transport.codec import Frame

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")

SILENT = Terminal()
WRITES = os.O_WRONLY | os.O_RDWR


class FullDisk:
    """While there is a name, whatever is written to a file of that name below a folder finds no room."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.name, self.n_hit = Path(), "", 0
        self._full = os.open("/dev/full", os.O_WRONLY)
        open_file, open_descriptor = builtins.open, os.open

        def opened(path: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
            file = open_file(path, mode, *rest, **options)
            if set(mode) & set("wax+") and self._is_meant(path):
                os.dup2(self._full, file.fileno())
            return file

        def opened_descriptor(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            descriptor = open_descriptor(path, flags, *rest, **options)
            if flags & WRITES and self._is_meant(path):
                os.dup2(self._full, descriptor)
            return descriptor

        patch.setattr(builtins, "open", opened)
        patch.setattr(io, "open", opened)
        patch.setattr(os, "open", opened_descriptor)

    def _is_meant(self, path: Any) -> bool:
        if not self.name or not isinstance(path, str | Path):
            return False
        name = re.sub(r"(\.[0-9a-f]{32})?\.partial$", "", Path(path).name.removeprefix("."))
        is_meant = name == self.name and self.folder in Path(path).parents
        self.n_hit += is_meant
        return is_meant

    def close(self) -> None:
        os.close(self._full)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Any:
    disk = FullDisk(monkeypatch)
    yield disk
    disk.name = ""
    disk.close()


def start_both(sites: Any, outcomes: Any) -> dict[str, Any]:
    bank, shop = sites.bank.write(), sites.shop.write()
    return outcomes(
        {
            "bank": lambda: train_active(bank, insecure=False, terminal=SILENT),
            "shop": lambda: train_passive(shop, insecure=False, terminal=SILENT),
        }
    )


def left_half_written(*sites: Any) -> list[Path]:
    return [path for site in sites for path in site.path.rglob("*") if path.suffix in (".partial", ".tmp")]


def assert_finishes_with_one_release(sites: Any, outcomes: Any) -> None:
    for site in (sites.bank, sites.shop):
        site.run["wait"] = 4
    found = start_both(sites, outcomes)
    assert not [error for error in found.values() if isinstance(error, BaseException)], found
    with Ledger(sites.shop.path / "runs" / "ledger.sqlite", create=False) as ledger:
        assert set(ledger.sums.n_releases) == {"spend", "visits"}
        assert max(ledger.sums.n_releases.values()) == 1
        assert ledger.n_stored == 2
        ledger.verify()


def prepare(sites: Any, method: str) -> Any:
    for site in (sites.bank, sites.shop):
        site.run["wait"] = 1
        site.run["align"] = {"method": method}
        site.run["held_out"] = 0.2
    sites.bank.run["model"] |= {"validation_fraction": 0.2, "seed": 1}
    sites.bank.run["correct_noise"] = method == "psi"
    sites.shop.run["share_thresholds"] = True
    return sites


def kept_for(peer: str) -> str:
    """The file that keeps the key of the held-out records of all runs with a peer."""
    return f"held_out.{hashlib.sha256(peer.encode()).hexdigest()[:16]}.json"


# In the order in which a run comes to them.
WRITERS = {
    "bank": (
        "meta.json",
        "config.yaml",
        "log.jsonl",
        "log.txt",
        "journal.json",
        "order.share",
        "common.npy",
        kept_for("shop"),
        "offer",
        "1.ranks",
        "1.ordered",
        "tests.json",
        "guarantee.json",
        "partners.json",
        "history.json",
        "held_out.json",
        "model.json",
    ),
    "shop": (
        "ledger.head.json",
        "meta.json",
        "config.yaml",
        "log.jsonl",
        "log.txt",
        "order.share",
        kept_for("bank"),
        "guarantee.json",
        "model.json",
    ),
}


@pytest.mark.parametrize("victim", WRITERS)
def test_a_file_that_finds_no_room_ends_the_run_in_a_sentence_and_loses_nothing(
    sites: Any, outcomes: Any, disk: FullDisk, victim: str
) -> None:
    """One file after the other finds no room; the same run is started again every time, and in the end finishes."""
    prepare(sites, "psi")
    (other,) = set(WRITERS) - {victim}
    for name in WRITERS[victim]:
        disk.folder, disk.name, disk.n_hit = getattr(sites, victim).path, name, 0
        found = start_both(sites, outcomes)
        assert disk.n_hit, name
        assert isinstance(found[victim], RunFolderError | LedgerError), (name, found)
        assert "No space left on device" in str(found[victim])
        assert isinstance(found[other], ProtocolError), (name, found)
        assert left_half_written(sites.bank, sites.shop) == [], name
    disk.name = ""
    assert_finishes_with_one_release(sites, outcomes)


def test_a_charge_whose_seal_finds_no_room_is_paid_once_and_nothing_leaves(
    sites: Any, outcomes: Any, disk: FullDisk
) -> None:
    """The ledger is there already; its head is behind by the charge, whose key the next attempt finds."""
    prepare(sites, "prealigned")
    path = sites.shop.path / "runs" / "ledger.sqlite"
    with Ledger(path):
        pass
    disk.folder, disk.name = sites.shop.path, "ledger.head.json"
    found = start_both(sites, outcomes)
    assert isinstance(found["shop"], LedgerError)
    assert isinstance(found["bank"], ProtocolError)
    assert str(sites.shop.path) not in str(found["bank"])
    assert left_half_written(sites.bank, sites.shop) == []
    disk.name = ""
    assert_finishes_with_one_release(sites, outcomes)


@pytest.mark.parametrize("victim", ["bank", "shop"])
def test_a_log_that_finds_no_room_in_mid_run_ends_it_in_a_sentence(
    sites: Any, outcomes: Any, disk: FullDisk, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    prepare(sites, "prealigned")
    auditor, (other,), due = RunLog._auditor, {"bank", "shop"} - {victim}, [""]

    def watched(log: RunLog, event: str, peer: str) -> Callable[[str, Sequence[Frame]], None]:
        note = auditor(log, event, peer)

        def noted(kind: str, frames: Sequence[Frame]) -> None:
            if kind == due[0] and peer == other:
                due[0] = ""
                os.dup2(disk._full, log._lines._file.fileno())
                # Otherwise the device is another file than the one at the log's name, which is opened anew.
                monkeypatch.setattr(log._lines, "_is_in_place", lambda: True)
            note(kind, frames)

        return noted

    monkeypatch.setattr(RunLog, "_auditor", watched)
    for behind in ("hello", "offer", "split ranks", "thresholds", "done"):
        due[0] = behind
        found = start_both(sites, outcomes)
        assert due == [""], behind
        assert isinstance(found[victim], RunFolderError), found
        assert "log.jsonl cannot be written: No space left on device" in str(found[victim])
        assert not isinstance(found[other], BaseException) or isinstance(found[other], ProtocolError)
        assert left_half_written(sites.bank, sites.shop) == []
    assert_finishes_with_one_release(sites, outcomes)


@pytest.mark.parametrize("name", ["predictions.csv", "metrics.json", "log.jsonl"])
def test_predictions_that_find_no_room_are_not_half_there(sites: Any, outcomes: Any, disk: FullDisk, name: str) -> None:
    prepare(sites, "prealigned")
    start_both(sites, outcomes)
    bank, shop = sites.bank.write(), sites.shop.write()
    options = {"data": None, "ids": None, "out": None, "insecure": False, "terminal": SILENT}

    def predict() -> dict[str, Any]:
        return outcomes(
            {
                "bank": lambda: predict_active(bank, mode="routed", **options),
                "shop": lambda: serve_passive(shop, data=None, insecure=False, terminal=SILENT),
            }
        )

    disk.folder, disk.name = sites.bank.path, name
    found = predict()
    assert isinstance(found["bank"], RunFolderError), found
    assert "No space left on device" in str(found["bank"])
    assert isinstance(found["shop"], (int, *EXPECTED_ERRORS))
    assert left_half_written(sites.bank, sites.shop) == []
    disk.name = ""
    target = sites.bank.run_folder / "predictions.csv"
    assert target.exists() == (name == "metrics.json")
    # The same request knows what it wrote, and asks nobody again; a finished one's file is replaced by none.
    if name == "metrics.json":
        assert predict_active(bank, mode="routed", **options) == target
    else:
        assert predict()["bank"] == target
    with pytest.raises(ConfigError, match=r"predictions\.csv exists"):
        predict_active(bank, mode="routed", **options)
