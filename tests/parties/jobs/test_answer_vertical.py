"""A passive party's answers: without a trained run, or from a file with a bad cell, nothing is answered."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost.errors import DataError
from opboost.routing import Router, SplitTests
from parties.config.reading import read_run, read_schema
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import RunFolderError
from parties.jobs.answer_vertical import read_records, serve_passive
from parties.jobs.life_cycle import Terminal
from parties.jobs.train_vertical import train_active, train_passive
from parties.reports.run_facts import run_facts
from parties.runs import run_log
from parties.runs.run_log import RunLog
from parties.session.connections import open_connections, throttled
from parties.session.handshake import greet_all
from parties.vertical.prediction_client import asking_hello
from protocols.errors import UnexpectedMessage
from protocols.messages.prediction import Answers, Ask, RecordStatus
from protocols.messages.vertical import Done
from protocols.transport.channel import expect
from tests.support.addresses import free_addresses
from tests.support.parquet_folders import in_a_folder
from tests.support.sites import Sites

SILENT = Terminal()


def records(sites: Sites) -> Any:
    run = read_run(sites.shop.write(), PassiveRun)
    schema, ignore = read_schema(run.table_schema)
    router = Router(run.mechanisms(schema)[:1], SplitTests((("spend", None),), np.array([30.5]), np.array([True])))
    return read_records(run.data, schema, ignore, router, run.align)


def test_every_record_of_the_file_can_be_asked_for(sites: Sites) -> None:
    assert sorted(records(sites).ids) == sorted(sites.shop.table["id"])


def test_a_cell_that_does_not_fit_is_found_before_a_peer_could_ask_about_it(sites: Sites) -> None:
    sites.shop.table.loc[sites.shop.table.index[3], "spend"] = float("inf")
    with pytest.raises(DataError):
        records(sites)


def test_without_a_trained_run_nothing_is_answered(sites: Sites) -> None:
    with pytest.raises(RunFolderError):
        serve_passive(sites.shop.write(), data=None, insecure=False, terminal=SILENT)


def test_a_service_reads_a_folder_as_one_table(sites: Sites) -> None:
    whole = records(sites)
    in_a_folder(sites.shop.table, sites.shop.path / "parts", 3)
    sites.shop.run |= {"engine": "dask", "dask": {}, "data": "parts"}
    found = records(sites)
    assert found.ids.tolist() == whole.ids.tolist()
    for (_, one), (_, other) in zip(found.columns, whole.columns, strict=True):
        assert (one.codes == other.codes).all()


def test_whoever_asks_without_end_fills_no_disk(
    sites: Sites, outcomes: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of every message there was a line for good, and of every request that drew a step."""
    monkeypatch.setattr(run_log, "PART_BYTES", 1 << 14)
    (address,) = free_addresses(1)
    sites.bank.run["listen"] = sites.shop.run["connect"] = address
    sites.bank.run["model"] = {"n_estimators": 1, "max_depth": 1}
    path, shop = sites.bank.write(), sites.shop.write()
    common: Any = {"insecure": False, "terminal": SILENT}
    outcomes({"bank": lambda: train_active(path, **common), "shop": lambda: train_passive(shop, **common)})
    bank, folder, n_asked = read_run(path, ActiveRun), sites.shop.run_folder, 400
    before = (folder / "log.jsonl").stat().st_size

    def ask() -> None:
        with closing(RunLog(tmp_path)) as log, open_connections(bank, False) as opened:
            (channel,) = opened(log).values()
            greet_all([channel], {channel.peer: asking_hello("bank", bank.run_id, None)})
            for number in range(n_asked):
                channel.send(Ask(ids=("nobody",), desensitized=number % 2 == 0))
                assert expect(channel, Answers).status.tolist() == [RecordStatus.UNKNOWN]
            channel.send(Done())

    found = outcomes({"bank": ask, "shop": lambda: serve_passive(shop, data=None, **common)})
    assert found["shop"] == 0
    assert sum(path.stat().st_size for path in folder.glob("messages.jsonl*")) < 3 << 14
    assert (folder / "log.jsonl").stat().st_size < before + 50 * n_asked
    events = [json.loads(line)["event"] for line in (folder / "log.jsonl").read_text().splitlines()]
    assert events.count("messages") > 5


def test_a_conversation_that_fails_is_in_the_log_with_its_answers(sites: Sites, outcomes: Any, tmp_path: Path) -> None:
    """What was answered has left, however the active party goes on."""
    (address,) = free_addresses(1)
    sites.bank.run["listen"] = sites.shop.run["connect"] = address
    path, shop = sites.bank.write(), sites.shop.write()
    common: Any = {"insecure": False, "terminal": SILENT}
    outcomes({"bank": lambda: train_active(path, **common), "shop": lambda: train_passive(shop, **common)})
    bank, asked = read_run(path, ActiveRun), tuple(sites.shop.table["id"][:3])

    def ask() -> None:
        with closing(RunLog(tmp_path)) as log, open_connections(bank, False) as opened:
            (channel,) = opened(log).values()
            greet_all([channel], {channel.peer: asking_hello("bank", bank.run_id, None)})
            channel.send(Ask(ids=asked, desensitized=False))
            expect(channel, Answers)
            channel.send(asking_hello("bank", bank.run_id, None))

    found = outcomes({"bank": ask, "shop": lambda: serve_passive(shop, data=None, **common)})
    assert isinstance(found["shop"], UnexpectedMessage)
    history = run_facts(shop).history
    assert [(one.n_records, one.n_answered) for one in history.predictions] == [(3, 3)]
    assert history.predictions[0].n_routed_bits
    assert not history.lacks_answers


def test_a_note_that_comes_often_is_noted_seldom_with_its_facts() -> None:
    found: list[tuple[int, str]] = []
    note = throttled(lambda number, *, word: found.append((number, word)))
    for number in range(1, 1000):
        note(number, word="a")
    assert found == [(number, "a") for number in (*range(1, 101), 128, 256, 512)]
