"""Values that occur once in the world are planted at one side; every byte and file of the other side is searched.

The shortest forms have four bytes, among some 200,000 that are random: a false alarm in 10,000 runs or so.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from parties.jobs.answer_vertical import serve_passive
from parties.jobs.predict_vertical import predict_active
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.reports.writing import report_of
from parties.runs.run_log import RunLog
from protocols.transport.codec import Frame

SPEND, LABEL = 73.19046285, 2718.28182846
SHOPS_OWN_ID, BANKS_OWN_ID = "zebra-7731-quagga", "okapi-9042-gnu"


def forms(value: float) -> list[bytes]:
    """A number as it may be written: text in several lengths, bytes of either order and width, and these as text."""
    raw = [np.array(value, kind).tobytes() for kind in ("<f8", ">f8", "<f4", ">f4")]
    text = [repr(value).encode(), f"{value:.4f}".encode(), f"{value:.6g}".encode()]
    return [*raw, *text, *(one.hex().encode() for one in raw), *(base64.b64encode(one).rstrip(b"=") for one in raw[:2])]


def words(text: str) -> list[bytes]:
    return [text.encode(), text.encode().hex().encode(), base64.b64encode(text.encode())[:-4], text.encode("utf-16-le")]


SHOPS = [*forms(SPEND), *words(SHOPS_OWN_ID), b"spend", b"visits"]
BANKS = [*forms(LABEL), *words(BANKS_OWN_ID), b"salary"]


def found_in(haystacks: Iterable[bytes], needles: Sequence[bytes]) -> set[bytes]:
    joined = b"\0\0\0".join(haystacks)
    return {needle for needle in needles if needle in joined}


def files(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


class Exchange:
    """A training run and predictions of both kinds; all frames that each side received."""

    def __init__(self, sites: Any, outcomes: Callable[..., dict[str, Any]], patch: pytest.MonkeyPatch) -> None:
        self.sites, self.frames = sites, {"bank": [], "shop": []}
        self._tap(patch)
        bank, shop = sites.bank, sites.shop
        bank.table = bank.table.rename(columns={"y": "salary"})
        bank.schema["label"] = "salary"
        draw = np.random.default_rng(4)
        bank.table["salary"] = (bank.table["age"] * 30 + draw.normal(0, 99, len(bank.table))).round(8)
        bank.table.loc[7, "salary"] = LABEL
        shop.table.loc[7, "spend"] = SPEND
        bank.table = pd.concat([bank.table, bank.table.iloc[[5]].assign(id=BANKS_OWN_ID)])
        shop.table = pd.concat([shop.table, shop.table.iloc[[5]].assign(id=SHOPS_OWN_ID)])
        bank.run["model"] |= {"objective": "reg:squarederror"}
        bank.run["correct_noise"] = True
        for site in (bank, shop):
            site.run |= {"report": True, "align": {"method": "psi"}}
        self._run(outcomes, train_active, train_passive)
        for mode in ("routed", "desensitized"):
            out = bank.run_folder / f"{mode}.csv"
            options = {"data": None, "ids": self._common(), "mode": mode, "out": out}
            self._run(
                outcomes,
                lambda path, o=options, **rest: predict_active(path, **o, **rest),
                lambda path, **rest: serve_passive(path, data=None, **rest),
            )
        for site in (bank, shop):
            report_of(site.path / "run.yaml").write()
        report_of(shop.path / "run.yaml", before=True).write()

    def _common(self) -> Path:
        path: Path = self.sites.bank.path / "common.txt"
        path.write_text("\n".join(sorted(set(self.sites.bank.table["id"]) - {BANKS_OWN_ID})))
        return path

    def _run(self, outcomes: Callable[..., dict[str, Any]], active: Any, passive: Any) -> None:
        calls = {
            "bank": lambda: active(self.sites.bank.write(), insecure=False, terminal=Terminal()),
            "shop": lambda: passive(self.sites.shop.write(), insecure=False, terminal=Terminal()),
        }
        for one in outcomes(calls).values():
            assert not isinstance(one, BaseException), one

    def _tap(self, patch: pytest.MonkeyPatch) -> None:
        original = RunLog.received

        def received(log: RunLog, peer: str) -> Any:
            note, receiver = original(log, peer), {"shop": "bank", "bank": "shop"}[peer]

            def tap(kind: str, frames: Sequence[Frame]) -> None:
                self.frames[receiver] += [bytes(frame) for frame in frames]
                note(kind, frames)

            return tap

        patch.setattr(RunLog, "received", received)


@pytest.fixture(scope="module")
def exchange(make_sites: Any, outcomes: Any, tmp_path_factory: pytest.TempPathFactory) -> Exchange:
    with pytest.MonkeyPatch.context() as patch:
        return Exchange(make_sites(tmp_path_factory.mktemp("canary")), outcomes, patch)


def test_everything_took_place(exchange: Exchange) -> None:
    assert sum(map(len, exchange.frames["bank"])) > 2_000
    names = {path.name for path in exchange.sites.bank.run_folder.iterdir()}
    assert {"report.html", "report.json", "fit.json", "routed.csv", "desensitized.csv", "log.jsonl"} <= names
    assert (exchange.sites.shop.run_folder / "report.html").exists()
    assert (exchange.sites.shop.path / "runs" / "spring.plan.html").exists()


def test_no_byte_that_the_bank_received_holds_a_datum_of_the_shop(exchange: Exchange) -> None:
    assert found_in(exchange.frames["bank"], SHOPS) == set()


def test_no_file_of_the_bank_holds_a_datum_of_the_shop(exchange: Exchange) -> None:
    assert found_in(files(exchange.sites.bank.path), SHOPS) == set()


def test_no_byte_that_the_shop_received_holds_a_label_or_another_datum_of_the_bank(exchange: Exchange) -> None:
    assert found_in(exchange.frames["shop"], BANKS) == set()


def test_no_file_of_the_shop_holds_a_label_or_another_datum_of_the_bank(exchange: Exchange) -> None:
    assert found_in(files(exchange.sites.shop.path), BANKS) == set()


def test_no_report_holds_a_planted_value_even_of_its_own_side(exchange: Exchange) -> None:
    for site, own in (
        (exchange.sites.bank, [*forms(LABEL), *words(BANKS_OWN_ID)]),
        (exchange.sites.shop, [*forms(SPEND), *words(SHOPS_OWN_ID)]),
    ):
        assert found_in([path.read_bytes() for path in (site.path / "runs").rglob("*report*")], own) == set()


def test_the_search_finds_what_is_there(exchange: Exchange, tmp_path: Path) -> None:
    """The twin: at their own side the values are found, and planted at the other side they would be."""
    assert repr(SPEND).encode() in found_in(files(exchange.sites.shop.path), SHOPS)
    assert repr(LABEL).encode() in found_in(files(exchange.sites.bank.path), BANKS)
    shutil.copytree(exchange.sites.bank.path, tmp_path / "bank")
    for needle in SHOPS:
        (tmp_path / "bank" / "model.json").write_bytes(b"before" + needle + b"after")
        assert needle in found_in(files(tmp_path / "bank"), SHOPS)
        assert needle in found_in([*exchange.frames["bank"], b"before" + needle], SHOPS)
