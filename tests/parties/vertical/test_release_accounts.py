"""A passive party's account: a table is drawn once, a second attempt sends the same or nothing, each use is logged."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost.routing import Router, SplitTests
from parties.config.reading import read_run, read_schema
from parties.config.vertical import PassiveRun
from parties.errors import Disagreement, LedgerError, OverBudget
from parties.ledger.answer_steps import step_s, whole_steps
from parties.ledger.charged_release import Account
from parties.ledger.release_ledger import Ledger
from parties.reports.ledger_statement import read_statement
from parties.runs.run_folder import RunFolder
from parties.runs.run_log import RunLog
from parties.vertical.prediction_server import AnswerableRecords
from parties.vertical.preparation import prepare_passive
from parties.vertical.release_accounts import account_of, answerer_of, check_training_release, release_once
from protocols.messages.prediction import Ask
from protocols.messages.vertical import Task
from tests.support.false_clock import FalseClock
from tests.support.sites import Sites


class Shop:
    """The shop's run with its folder and log."""

    def __init__(self, sites: Sites) -> None:
        self.path = sites.shop.write()
        self.run = read_run(self.path, PassiveRun)
        self.schema, _ = read_schema(self.run.table_schema)
        self.folder = RunFolder(self.run.run_folder)
        self.folder.create(self.path, party="shop", role="passive")

    def release(self, order: Any = None) -> list[Any]:
        prepared = prepare_passive(self.run, self.path)
        table = prepared.named()
        with closing(RunLog(self.folder.path)) as log, account_of(self.run, self.schema, Task.TRAIN) as account:
            release_once(account, prepared.table.ids, self.folder, log, order=order)(prepared.mechanisms, table)
        return [
            np.array(block[f"{c}.codes"]).tolist() for block in table.blocks for c in range(len(prepared.mechanisms))
        ]

    def logged(self) -> list[tuple[int, int]]:
        lines = [json.loads(line) for line in (self.folder.path / "log.jsonl").read_text().splitlines()]
        return [(line["n_drawn"], line["n_reused"]) for line in lines if line["event"] == "released"]


@pytest.fixture
def shop(sites: Sites) -> Shop:
    return Shop(sites)


def test_a_table_is_drawn_once_and_sent_again_to_the_bit(shop: Shop) -> None:
    assert shop.release() == shop.release()
    assert shop.logged() == [(2, 0), (0, 2)]
    assert shop.folder.has_released


@pytest.mark.parametrize("is_known", [True, False], ids=["released to another party before", "never released"])
def test_a_run_releases_no_other_records_than_it_began_with(sites: Sites, is_known: bool) -> None:
    """Else whoever comes again with other ids would be told whether they were ever released to anybody."""
    every = sites.shop.table

    def with_rows(first: int, end: int) -> Shop:
        sites.shop.table = every[first:end]
        return Shop(sites)

    with_rows(0, 20 if is_known else 10).release()
    sites.shop.run["run_id"] = "autumn"
    with_rows(0, 10).release(np.arange(10))
    for first, end, order in (
        (10, 20, np.arange(10)),
        (0, 9, np.arange(9)),
        (0, 10, np.arange(10)[::-1]),
        (0, 10, None),
    ):
        with pytest.raises(Disagreement, match="other records are common now than were when this run released them"):
            with_rows(first, end).release(order)
    earlier = with_rows(0, 10)
    meta = earlier.folder.read_json("meta.json")
    # A run that an earlier version began noted none of them.
    earlier.folder.write_json("meta.json", {**meta, "records": None})
    with pytest.raises(Disagreement, match="or the run began with an earlier version"):
        earlier.release(np.arange(10))
    earlier.folder.write_json("meta.json", meta)
    again = with_rows(0, 10)
    again.release(np.arange(10))
    assert again.logged()[-1] == (0, 2)


def test_a_record_may_not_spend_more_per_step_of_today_than_its_limit_over_two_runs(sites: Sites) -> None:
    """Of a column that was charged by points, and costs nothing again, a step of today spans eight."""
    # A step of so many points loses more than noise can hide.
    sites.shop.run["no_privacy"] = True
    sites.shop.run["desensitize"]["leave_out"] = ["visits"]
    Shop(sites).release()
    (spend,) = read_statement(sites.shop.write(), None).columns
    del sites.shop.run["desensitize"]["leave_out"]
    sites.shop.schema["columns"]["spend"]["step"] = 7.5 * spend.unit.size if spend.unit is not None else 0
    sites.shop.run |= {"run_id": "autumn", "ledger": {"budget": {"per_record": 1.0}}}
    with pytest.raises(OverBudget) as refusal:
        Shop(sites).release()
    wanted = float(re.findall(r"a record over all its columns would have spent ([\d.]+) of", str(refusal.value))[0])
    sites.shop.run["ledger"]["budget"]["per_record"] = wanted - 7 * spend.epsilon.spent
    with pytest.raises(OverBudget, match="a record over all its columns"):
        Shop(sites).release()
    sites.shop.run["ledger"]["budget"]["per_record"] = wanted
    Shop(sites).release()
    record = read_statement(sites.shop.write(), None).record
    assert (record.spent, record.remaining) == (pytest.approx(wanted), pytest.approx(0, abs=1e-6))


def test_a_run_that_has_released_draws_nothing_anew(shop: Shop, tmp_path: Path) -> None:
    shop.release()
    for file in shop.run.ledger.path.parent.glob("ledger.*"):
        file.unlink()
    with pytest.raises(LedgerError):
        shop.release()
    assert shop.logged() == [(2, 0)]


def test_a_ledger_knows_the_runs_that_released_on_it(shop: Shop) -> None:
    shop.release()
    with account_of(shop.run, shop.schema, Task.PREDICT) as account:
        check_training_release(account.ledger, account.occasion)
        for other in ({"run_id": "summer"}, {"run_id": "sprin"}, {"peer": "insurer"}):
            with pytest.raises(LedgerError, match="has nothing of what run"):
                check_training_release(account.ledger, replace(account.occasion, **other))


def test_answers_begin_no_ledger(shop: Shop) -> None:
    with pytest.raises(LedgerError, match="is not there"), account_of(shop.run, shop.schema, Task.PREDICT):
        pass
    assert not shop.run.ledger.path.exists()


def test_an_account_says_for_what_and_for_whom(shop: Shop) -> None:
    shop.release()
    with account_of(shop.run, shop.schema, Task.PREDICT) as account:
        assert (account.occasion.task, account.occasion.peer, account.occasion.run_id) == ("predict", "bank", "spring")
        assert isinstance(account.ledger, Ledger)
        assert account.rng.is_secure
        assert account.keeps is shop.run.keeps


@pytest.mark.parametrize("limit", [None, 0.001])
def test_answers_about_several_records_take_as_long_whatever_was_released_before(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, limit: float | None
) -> None:
    """Beyond the limit, new records are refused at once and known ones answered."""
    whole, sites.shop.table = sites.shop.table, sites.shop.table.iloc[:300]
    shop = Shop(sites)
    shop.release()
    known, new = (tuple(part["id"].sort_values()) for part in (whole[:300], whole[300:]))
    sites.shop.table = whole
    if limit is not None:
        sites.shop.run["ledger"] = {"budget": {"per_record": limit}}
    shop.run = read_run(sites.shop.write(), PassiveRun)
    clock, makes = FalseClock(), Account.records

    def records(account: Account, *asked: Any) -> Any:
        clock.now += 0.01
        columns, cells = makes(account, *asked)
        clock.now += 0.07 if any(one.n_new for one in cells) else 0.03
        return columns, cells

    monkeypatch.setattr(Account, "records", records)
    taken = {}
    for name, ids in {
        "known": known[:8],
        "new": new[:8],
        "mixed": known[8:12] + new[8:12],
        "unknown": (*known[:4], "a", "b", "c", "d"),
        "one": known[:1],
    }.items():
        began = clock.now
        outcome = _answered(shop, ids, clock)
        assert outcome is (limit is None or name in ("known", "unknown", "one"))
        taken[name] = clock.now - began
    assert taken.pop("one") == pytest.approx(0.04)
    assert taken == pytest.approx(dict.fromkeys(taken, step_s(8, 2)))


def _answered(shop: Shop, ids: tuple[str, ...], clock: FalseClock) -> bool:
    """Whether a request for desensitized records was answered within the budget."""
    prepared = prepare_passive(shop.run, shop.path)
    tests = SplitTests((("spend", None), ("visits", None)), np.array([30.5, 60.5]), np.array([True, False]))
    router = Router(prepared.mechanisms, tests)
    records = AnswerableRecords.of(router, prepared.table.index, prepared.table.frame)
    steps = partial(whole_steps, clock=clock, sleep=clock.sleep)
    with (
        closing(RunLog(shop.folder.path)) as log,
        answerer_of(shop.run, shop.schema, router, records, log, stays_up=False, steps=steps) as answerer,
    ):
        try:
            answerer.answer(Ask(ids=ids, desensitized=True))
            return True
        except OverBudget:
            return False
