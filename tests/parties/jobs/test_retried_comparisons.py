"""A passive party that begins again by itself compares ids with one active party so often, however that leaves it."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest
from typer.testing import CliRunner

from parties.cli import app
from parties.commands import exit_codes
from parties.commands.exit_codes import ExitCode
from parties.session.reconnection import MAX_RESTARTS
from protocols.alignment import curve_prf
from protocols.alignment.private_set_intersection import AlignmentTerms, _exchange_shares
from protocols.errors import Outlook, ProtocolError
from protocols.messages.id_alignment import BlindedIds
from protocols.messages.vertical import Abort, Hello, Role, Task, Terms
from protocols.transport.channel import Channel, Timing, expect
from protocols.transport.keys import read_public, read_secret
from protocols.transport.zmq_listener import Listener

# Of a false bank, which would go on for as long as it is let.
MOST_ATTEMPTS = 2 * MAX_RESTARTS


def compare(channel: Channel, number: int) -> None:
    """Learn whether the shop knows other ids than the last time."""
    shop = expect(channel, Hello)
    channel.send(
        Hello(
            role=Role.ACTIVE,
            party="bank",
            run_id="spring",
            task=Task.TRAIN,
            n_rows=1,
            has_label=True,
            alignment=shop.alignment,
            plan=Terms(tests=1),
        )
    )
    _exchange_shares(channel, AlignmentTerms(run_id="spring"), speaks_first=False)
    curve_prf.query([channel], [f"k{number:04}".encode()], lambda step, done, total: None)
    assert len(expect(channel, BlindedIds).rows) == shop.n_rows


def leave(channel: Channel) -> None:
    """Be gone without a word, for this conversation."""
    channel.reset(renews_deadline=True)


def put_off(channel: Channel) -> None:
    """Say that it comes again later."""
    channel.send(Abort(phase="aligning the records", reason="it was told to stop", outlook=Outlook.LATER))
    channel.reset(renews_deadline=True)


@pytest.mark.parametrize("ends", [leave, put_off])
def test_a_false_bank_compares_ids_no_more_often_with_retry(
    sites: Any, monkeypatch: pytest.MonkeyPatch, ends: Any
) -> None:
    monkeypatch.setattr(exit_codes, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(exit_codes, "LAST_RETRY_S", 0.01)
    sites.shop.run |= {"align": {"method": "psi-dh"}, "wait": 2}
    keys = read_secret(sites.bank.path / "keys" / "bank.secret")
    shop = {"shop": read_public(sites.bank.path / "keys" / "shop.public")}
    listener = Listener(sites.bank.run["listen"], shop, keys=keys, timing=Timing(wait_s=60), on_event=print)
    learnt: list[int] = []

    def bank() -> None:
        channel = listener.channel("shop")
        with suppress(ProtocolError):
            for number in range(MOST_ATTEMPTS):
                compare(channel, number)
                learnt.append(number)
                ends(channel)
            expect(channel, Hello)
            channel.send(Abort(phase="greeting", reason="enough"))
        listener.close()

    thread = threading.Thread(target=bank, daemon=True)
    thread.start()
    found = CliRunner().invoke(app, ["party-b", str(sites.shop.write()), "--retry"])
    thread.join(30)
    assert (len(learnt), found.exit_code) == (MAX_RESTARTS + 1, ExitCode.REFUSED)
    assert "Start it again if that is meant to be" in found.output
