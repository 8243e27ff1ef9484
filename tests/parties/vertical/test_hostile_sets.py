"""A peer that calls ids common which it does not hold gets nothing, and whoever is attacked says why."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from parties.errors import Disagreement
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.session import handshake
from protocols.alignment import curve_prf, transfer_prf
from protocols.alignment.blinding import Cipher
from protocols.alignment.id_proof import IdProof, password_of
from protocols.alignment.private_set_intersection import AlignmentTerms, _exchange_shares
from protocols.alignment.sorted_rows import as_words
from protocols.errors import DecodeError, ProtocolError, UnexpectedMessage
from protocols.messages.id_alignment import BlindedIds, CommonIds, IdConfirmation, OrderShare, ReblindedIds
from protocols.messages.vertical import Done, Hello, Role, Task, Terms
from protocols.transport.channel import Channel, expect
from protocols.transport.keys import generate_shared
from tests.support.memory_wire import MemoryWire

SILENT = Terminal()
N_SHOP = 400

Forge = Callable[[Hello, IdConfirmation], IdConfirmation]
"""What a bank sends as its proof, given its own greeting and what the shop sent."""

GUESS = IdProof(password_of("a guess"), Cipher(n_workers=1))


@dataclass(frozen=True, kw_only=True)
class FalseBank:
    """Brings ids that the shop does not know, calls some of the shop's common, and claims to hold them.

    Attributes
    ----------
    n_brought, n_flagged : int
    n_claimed : int, optional
        Records that it greets with; by default as many as the shop.
    echoes_point : bool
        Whether its point is the shop's own.
    forge : callable
    """

    n_brought: int = N_SHOP
    n_flagged: int = N_SHOP
    n_claimed: int | None = None
    echoes_point: bool = False
    forge: Forge = lambda mine, theirs: theirs

    def __call__(self, channel: Channel) -> list[str]:
        """Returns the kinds of what the shop sent after the proof."""
        shop = expect(channel, Hello)
        mine = Hello(
            role=Role.ACTIVE,
            party="bank",
            run_id="spring",
            task=Task.TRAIN,
            n_rows=self.n_brought,
            has_label=True,
            alignment=shop.alignment,
            plan=Terms(tests=1),
        )
        if not shop.alignment.startswith("prealigned"):
            channel.send(mine)
            self._align(channel, shop.alignment.partition(",")[0])
            shop = expect(channel, Hello)
        point = shop.id_point if self.echoes_point else GUESS.point
        n_rows = shop.n_rows if self.n_claimed is None else self.n_claimed
        mine = mine.model_copy(update={"n_rows": n_rows, "id_point": point})
        channel.send(mine)
        channel.send(self.forge(mine, expect(channel, IdConfirmation)))
        return rest(channel)

    def _align(self, channel: Channel, method: str) -> None:
        seed = _exchange_shares(channel, AlignmentTerms(run_id="spring"), speaks_first=False)
        nobody = [f"nobody {i}".encode() for i in range(self.n_brought)]
        match method:
            case "psi":
                transfer_prf.query([channel], nobody, [seed], lambda step, done, total: None)
            case "psi-dh":
                curve_prf.query([channel], nobody, lambda step, done, total: None)
        assert len(expect(channel, BlindedIds).rows) == N_SHOP
        channel.send(CommonIds(bits=np.packbits(np.arange(N_SHOP) < self.n_flagged)))


def rest(channel: Channel) -> list[str]:
    """The kinds of the messages that still come, up to the ranks of both columns."""
    kinds: list[str] = []
    with suppress(ProtocolError):
        while kinds.count("rank chunk") < 2:
            kinds.append(channel.receive().kind)
    return kinds


FORGED: dict[str, FalseBank] = {
    "its own tag": FalseBank(),
    "its own point and tag": FalseBank(echoes_point=True),
    "the tag of a guess": FalseBank(forge=lambda mine, theirs: GUESS.confirmations(mine, shop_like(mine))[0]),
    "zeros": FalseBank(forge=lambda mine, theirs: IdConfirmation(tag=bytes(32))),
    "of one id alone": FalseBank(n_brought=1, n_flagged=1),
}


def shop_like(mine: Hello) -> Hello:
    """The shop's greeting, were its point that of the guess."""
    return mine.model_copy(update={"role": Role.PASSIVE, "party": "shop"})


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> MemoryWire:
    return MemoryWire(monkeypatch)


def attack(sites: Any, wire: MemoryWire, bank: Callable[[Channel], Any], method: str = "psi") -> dict[str, Any]:
    """How the shop's whole job ended, and what the false bank got."""
    sites.shop.run["align"] = {"method": method}
    if method == "hashed":
        sites.shop.run["align"]["secret"] = "keys/both.shared"
        if not (sites.shop.path / "keys" / "both.shared").exists():
            generate_shared(sites.shop.path / "keys", "both")
    path = sites.shop.write()
    calls = {
        "bank": lambda: bank(wire.end("bank", "shop")),
        "shop": lambda: train_passive(path, insecure=False, terminal=SILENT),
    }
    return wire.together(calls)


def n_charged(site: Any) -> int:
    with sqlite3.connect(site.path / "runs" / "ledger.sqlite") as database:
        return sum(json.loads(fields)["kind"] == "charge" for (fields,) in database.execute("SELECT fields FROM lines"))


@pytest.mark.parametrize("method", ["psi", "psi-dh", "hashed"])
def test_more_common_ids_than_the_bank_has_are_refused(sites: Any, wire: MemoryWire, method: str) -> None:
    found = attack(sites, wire, FalseBank(n_brought=1), method)
    assert isinstance(found["shop"], UnexpectedMessage)
    assert str(found["shop"]) == ("bank says that 400 ids are common and announced to have 1. Nothing was released")
    assert n_charged(sites.shop) == 0


@pytest.mark.parametrize("method", ["psi", "hashed", "prealigned"])
@pytest.mark.parametrize("case", FORGED)
def test_whoever_does_not_hold_the_ids_gets_no_rank(sites: Any, wire: MemoryWire, case: str, method: str) -> None:
    found = attack(sites, wire, FORGED[case], method)
    assert isinstance(found["shop"], Disagreement)
    assert str(found["shop"]).endswith("both need the same ids. Nothing was released")
    assert set(found["bank"]) <= {"abort"}
    assert n_charged(sites.shop) == 0


def test_nor_who_claims_another_number_of_records(sites: Any, wire: MemoryWire) -> None:
    found = attack(sites, wire, FalseBank(n_claimed=N_SHOP + 1))
    assert "it has 401 records, this party 400; both need the same ids" in str(found["shop"])
    assert n_charged(sites.shop) == 0


@pytest.mark.parametrize("method", ["psi", "prealigned"])
def test_a_shop_that_believes_any_proof_is_robbed(
    sites: Any, wire: MemoryWire, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """The attack is sound: without the comparison it gets the ranks of all records."""
    monkeypatch.setattr(handshake, "is_same", lambda found, due: True)
    found = attack(sites, wire, FORGED["its own point and tag"], method)
    assert found["bank"] == ["offer", "rank chunk", "rank chunk"]
    assert n_charged(sites.shop) == 2


@pytest.mark.parametrize(("method", "error"), [("psi", DecodeError), ("psi-dh", Disagreement)])
def test_the_words_of_an_honest_bank_prove_nothing_in_the_next_attempt(
    sites: Any, wire: MemoryWire, method: str, error: type[Exception]
) -> None:
    """Both sides keep their shares of the order, so but for the keys an attempt is like the one before."""
    for site in (sites.bank, sites.shop):
        site.run["align"] = {"method": method}
    paths = sites.bank.write(), sites.shop.write()
    wire.together(
        {
            "bank": lambda: train_active(paths[0], insecure=False, terminal=SILENT),
            "shop": lambda: train_passive(paths[1], insecure=False, terminal=SILENT),
        }
    )
    said = list(wire.received["shop"]["bank"])
    meta = sites.shop.run_folder / "meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "finished": None}))

    def repeat(channel: Channel) -> list[str]:
        for message in said:
            channel.send(message)
        return rest(channel)

    found = attack(sites, wire, repeat, method)
    assert isinstance(found["shop"], error)
    assert not {"offer", "rank chunk", "thresholds"} & set(found["bank"])


class FalseShop:
    """Knows one of the bank's ids, guesses its place, makes the points of all others of it: only this one is common."""

    def __init__(self, known: bytes, n_brought: int) -> None:
        self.known, self.n_brought = known, n_brought

    def __call__(self, channel: Channel) -> list[str]:
        bank = Hello(
            role=Role.PASSIVE,
            party="shop",
            run_id="spring",
            task=Task.TRAIN,
            n_rows=self.n_brought,
            has_label=False,
            alignment="psi-dh, duplicates: refuse, id columns: 1",
            names=("c0",),
        )
        channel.send(bank)
        assert expect(channel, Hello).n_rows == self.n_brought
        channel.send(OrderShare(random=bytes(32)))
        expect(channel, OrderShare)
        theirs = expect(channel, BlindedIds).rows
        keys = [Cipher(n_workers=1) for _ in range(self.n_brought)]
        channel.send(ReblindedIds(start=0, rows=np.concatenate([key.reblind(theirs[:1]) for key in keys])))
        own = [curve_prf._own_values(key, [self.known], lambda *step: None) for key in keys]
        values = np.concatenate([rows for one in own for _, rows in one.ascending()])
        channel.send(BlindedIds(start=0, rows=values[np.argsort(as_words(values))]))
        assert np.unpackbits(expect(channel, CommonIds).bits).sum() == 1
        channel.send(bank.model_copy(update={"n_rows": 1, "id_point": GUESS.point}))
        expect(channel, Hello)
        channel.send(IdConfirmation(tag=bytes(32)))
        channel.send(Done())
        return rest(channel)


def rob_bank(sites: Any, wire: MemoryWire, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    # The guess is right.
    monkeypatch.setattr(curve_prf, "_random_order", np.arange)
    sites.bank.run["align"] = {"method": "psi-dh"}
    sites.bank.table = sites.bank.table.sort_values("id").head(5).assign(y=[0, 1, 0, 1, 0])
    path = sites.bank.write()
    false = FalseShop(str(sites.bank.table["id"].iloc[0]).encode(), 5)
    calls: dict[str, Callable[[], Any]] = {
        "bank": lambda: train_active(path, insecure=False, terminal=SILENT),
        "shop": lambda: false(wire.end("shop", "bank")),
    }
    return wire.together(calls)


def test_a_shop_that_makes_up_ids_is_refused_before_the_bank_trains(
    sites: Any, wire: MemoryWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rob_bank(sites, wire, monkeypatch)
    assert isinstance(found["bank"], Disagreement)
    assert str(found["bank"]).endswith("both need the same ids. Nothing was released")
    assert found["shop"] == ["id confirmation", "abort"]


def test_a_bank_that_believes_any_proof_goes_on(sites: Any, wire: MemoryWire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "is_same", lambda found, due: True)
    found = rob_bank(sites, wire, monkeypatch)
    assert isinstance(found["bank"], UnexpectedMessage)
    assert str(found["bank"]) == "shop sent 'done' where 'offer' was due"
