"""First messages of coordinators, workers and owners of a chain: terms are compared, and doctors may check before."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar

from pydantic import JsonValue

from parties.session.handshake import CHECK_GRACE_S, MAX_CHECKS
from protocols.errors import ProtocolError, UnexpectedMessage
from protocols.messages.comparison import Compare
from protocols.messages.horizontal import Join, TakeTurns
from protocols.messages.message import Message
from protocols.transport.channel import Channel, expected
from protocols.transport.codec import MAX_NAMED
from protocols.transport.sanitize import readable

M = TypeVar("M", bound=Message)


def term_differences(mine: Mapping[str, JsonValue], theirs: Mapping[str, JsonValue], peer: str) -> list[str]:
    """Terms that differ, as at most `MAX_NAMED` sentences and one with the number of the others."""
    names = [*mine, *(name for name in theirs if name not in mine)]
    differ = [name for name in names if not (name in mine and name in theirs and _is_same(mine[name], theirs[name]))]
    differences = [
        f"{readable(name, 80)}: {peer} has {_shown(theirs, name)}, this party {_shown(mine, name)}"
        for name in differ[:MAX_NAMED]
    ]
    return differences + ([f"{len(differ) - MAX_NAMED} more terms differ"] if len(differ) > MAX_NAMED else [])


def first_message(channel: Channel, *, kind: type[M], mine: Join | TakeTurns, is_sent: bool) -> M | None:
    """The first message of a peer; None if its doctor came, which only checks. The peer itself is then still to come.

    `is_sent` says that this party's first message was sent; the caller then sends it again after the doctor.
    """
    if not isinstance(message := channel.receive(), Compare):
        return expected(channel.peer, message, kind)
    if is_sent:
        time.sleep(CHECK_GRACE_S)
    else:
        # While others were waited for, the doctor may have left.
        with suppress(ProtocolError):
            channel.send(Compare(party=mine.party, run_id=mine.run_id, terms=mine.terms))
    channel.reset()
    return None


def first_answer(channel: Channel, *, kind: type[M], mine: Join) -> M:
    """The first message of a peer to which `mine` was sent; its doctor may come before, `MAX_CHECKS` times."""
    for _ in range(MAX_CHECKS):
        if (message := first_message(channel, kind=kind, mine=mine, is_sent=True)) is not None:
            return message
        channel.send(mine)
    raise checked_too_often(channel.peer)


def checked_too_often(peer: str) -> UnexpectedMessage:
    """Exception for a peer whose doctor came `MAX_CHECKS` times, and never the peer itself."""
    return UnexpectedMessage(f"{peer} only looked, {MAX_CHECKS} times; nothing was sent")


def _is_same(first: JsonValue, second: JsonValue) -> bool:
    """Whether two values are written alike: a batch of 1 tree is not one of 1.0 times all trees."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def _shown(terms: Mapping[str, JsonValue], name: str) -> str:
    return readable(str(terms[name]), 80) if name in terms else "nothing"
