"""Records that were released for training get no exact answer, in any run on a ledger, unless B allows it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from parties.doctor.check_result import Status
from parties.doctor.prediction import examine_prediction
from parties.errors import LedgerError, RecordsRefused
from parties.ledger.ledger_lines import Occasion
from parties.ledger.release_ledger import Ledger
from parties.reports.writing import report_of
from parties.vertical.release_accounts import TrainingRecords
from tests.support.partitioned_sites import Outcomes, predict_both, train_both

N_TRAINED = 300


def predicted(sites: Any, outcomes: Outcomes, out: Path, *, mode: str = "routed") -> pd.Series:
    """The statuses of all customers by id."""
    found = predict_both(sites, outcomes, out=out, mode=mode)
    errors = [error for error in found.values() if isinstance(error, Exception)]
    assert all(isinstance(error, RecordsRefused) for error in errors), errors
    return pd.read_csv(out).set_index("id")["status"]


@pytest.mark.parametrize("answers", ["tests", "cells"])
def test_training_records_are_refused_and_new_ones_are_answered(
    sites: Any, outcomes: Outcomes, tmp_path: Path, answers: str
) -> None:
    trained = sites.bank.table["id"][:N_TRAINED].tolist()
    for site in (sites.bank, sites.shop):
        site.run |= {"answers": answers, "ids": "ids.txt"}
        (site.path / "ids.txt").write_text("\n".join(trained))
    del sites.shop.run["allow_routed"]
    sites.bank.run["report"] = True
    assert train_both(sites, outcomes) == {}
    page = (sites.bank.run_folder / "report.html").read_text()
    assert ("about the labels of" in page) is (answers == "tests")
    assert ("passive party reads depends on labels, but for which records have one" in page) is (answers == "cells")
    limit = {"routed_bits_per_day": 10**6}
    sites.shop.run["serve"] = limit
    status = predicted(sites, outcomes, tmp_path / "1.csv")
    assert set(status[trained]) == {"refused_training"}
    assert set(status.drop(trained)) == {"ok"}
    said = (sites.bank.run_folder / "log.txt").read_text()
    assert "which the model was trained on: passive parties refuse exact answers about those that were released" in said
    assert set(predicted(sites, outcomes, tmp_path / "2.csv", mode="desensitized")) == {"ok"}
    # The twin: an owner who says so answers for all of them.
    sites.shop.run["allow_routed"] = {"training_records": True}
    assert set(predicted(sites, outcomes, tmp_path / "3.csv")) == {"ok"}
    sites.shop.run["allow_routed"] = False
    assert set(predicted(sites, outcomes, tmp_path / "4.csv")) == {"refused_routed"}


@pytest.mark.parametrize("mode", ["routed", "desensitized"])
@pytest.mark.parametrize("lost", ["named otherwise", "removed with its head", "an older copy"])
def test_without_the_runs_own_ledger_nothing_is_answered(
    sites: Any, outcomes: Outcomes, tmp_path: Path, lost: str, mode: str
) -> None:
    """Its training records would count as new ones, and be answered exactly or drawn a second time."""
    trained = sites.bank.table["id"][:N_TRAINED].tolist()
    for site in (sites.bank, sites.shop):
        site.run["ids"] = "ids.txt"
        (site.path / "ids.txt").write_text("\n".join(trained))
    sites.shop.run |= {"wait": 3, "report": True}
    sites.bank.run["wait"] = 3
    del sites.shop.run["allow_routed"]
    runs, kept = sites.shop.path / "runs", tmp_path / "kept"
    with Ledger(runs / "ledger.sqlite"):
        pass
    older = {path.name: path.read_bytes() for path in runs.glob("ledger.*")}
    assert train_both(sites, outcomes) == {}
    kept.mkdir()
    if lost == "named otherwise":
        sites.shop.run["ledger"] = {"path": "runs/other.sqlite"}
        with Ledger(runs / "other.sqlite"):
            pass
    else:
        for path in runs.glob("ledger.*"):
            path.rename(kept / path.name)
        for name, content in older.items() if lost == "an older copy" else ():
            (runs / name).write_bytes(content)
            (runs / name).chmod(0o600)
    found = predict_both(sites, outcomes, out=tmp_path / "1.csv", mode=mode)
    assert isinstance(found["shop"], LedgerError)
    assert not (tmp_path / "1.csv").exists()
    page = report_of(sites.shop.write()).text("md")
    assert "The run's ledger is not there" in page
    assert "nothing has been released" not in page
    (finding,) = [one for one in examine_prediction(sites.shop.write(), wait_s=0.1) if one.check == "ledger"]
    assert finding.status is Status.PROBLEM
    # The twin: with the ledger back, answers are what they were.
    sites.shop.run.pop("ledger", None)
    for path in kept.iterdir():
        path.replace(runs / path.name)
    status = predicted(sites, outcomes, tmp_path / "2.csv", mode=mode)
    assert set(status[trained]) == {"refused_training" if mode == "routed" else "ok"}
    assert set(status.drop(trained)) == {"ok"}
    assert "The run's ledger is not there" not in report_of(sites.shop.write()).text("md")


class OnePeer:
    """An account of which only ledger and peer are looked at."""

    def __init__(self, ledger: Ledger, peer: str) -> None:
        self.ledger, self.occasion = ledger, Occasion(run_id="spring", task="predict", peer=peer)


def test_a_release_counts_for_its_peer_alone_and_as_soon_as_another_process_made_it(
    sites: Any, outcomes: Outcomes
) -> None:
    """What was released to somebody else must not show: its mark would tell the other bank's customers."""
    trained = sites.bank.table["id"][:N_TRAINED].tolist()
    for site in (sites.bank, sites.shop):
        site.run["ids"] = "ids.txt"
        (site.path / "ids.txt").write_text("\n".join(trained))
    assert train_both(sites, outcomes) == {}
    ids = pd.Index(sites.shop.table["id"], dtype=object)
    with Ledger(sites.shop.path / "runs" / "ledger.sqlite") as ledger:
        mine, theirs = (TrainingRecords(OnePeer(ledger, peer)) for peer in ("bank", "other"))  # type: ignore[arg-type]
        np.testing.assert_array_equal(mine.among(ids), ids.isin(trained))
        assert not theirs.among(ids).any()
        before = mine.among(ids)
        assert mine.among(ids) is before
        head = ledger.path.with_suffix(".head.json")
        looked = head.stat()
        with Ledger(ledger.path) as elsewhere:
            elsewhere.note_released(elsewhere._records(sorted(elsewhere.sums.trained("bank"))[0])[:7], _train("other"))
        # File systems know times by milliseconds or seconds.
        os.utime(head, ns=(looked.st_atime_ns, looked.st_mtime_ns))
        assert theirs.among(ids).sum() == 7
        # A lookup of all records takes longer: the time of an answer would tell of releases to others.
        assert mine.among(ids) is before


def _train(peer: str) -> Occasion:
    return Occasion(run_id="summer", task="train", peer=peer)
