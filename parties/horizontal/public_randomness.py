"""Public randomness: commitments, the bits drawn from them, and the comparison of terms before a run."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from opboost.rng import BitSource
from parties.errors import Disagreement
from parties.session.handshake import LOOKER_LEAVES_S, MAX_LOOKS
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
    found = [
        f"{readable(name, 80)}: {peer} has {_shown(theirs, name)}, this party {_shown(mine, name)}"
        for name in differ[:MAX_NAMED]
    ]
    return found + ([f"{len(differ) - MAX_NAMED} more terms differ"] if len(differ) > MAX_NAMED else [])


def first_word(channel: Channel, *, kind: type[M], mine: Join | TakeTurns, is_called: bool) -> M | None:
    """The first word of a peer; None if its doctor came, which only looks. Then the peer itself is to come yet.

    A peer that `is_called` was sent this party's word before, and is to be sent it again after its doctor.
    """
    if not isinstance(message := channel.receive(), Compare):
        return expected(channel.peer, message, kind)
    if is_called:
        time.sleep(LOOKER_LEAVES_S)
    else:
        # While others were waited for, the doctor may have left.
        with suppress(ProtocolError):
            channel.send(Compare(party=mine.party, run_id=mine.run_id, terms=mine.terms))
    channel.begin_again()
    return None


def called_word(channel: Channel, *, kind: type[M], mine: Join) -> M:
    """The first word of a peer that was sent this party's, after those of its doctor; it may look `MAX_LOOKS` times."""
    for _ in range(MAX_LOOKS):
        if (said := first_word(channel, kind=kind, mine=mine, is_called=True)) is not None:
            return said
        channel.send(mine)
    raise looked_too_often(channel.peer)


def looked_too_often(peer: str) -> UnexpectedMessage:
    """Exception for a peer of which only its doctor came."""
    return UnexpectedMessage(f"{peer} only looked, {MAX_LOOKS} times; nothing was sent")


def needed(threshold: int, n_workers: int) -> int:
    """Threshold of a sum among the workers present: the agreed one, and at least a majority."""
    return max(threshold, n_workers // 2 + 1)


def commitment(run_id: str, party: str, random: bytes) -> bytes:
    """Hash commitment of a worker to its random bytes, 32 bytes."""
    return hashlib.sha256(repr(("opboost commitment", run_id, party, random)).encode()).digest()


def drawing_digest(run_id: str, names: tuple[str, ...], commitments: NDArray[np.uint8]) -> bytes:
    """Digest that identifies a drawing of public bits, 32 bytes: commitments determine the bits."""
    text = repr(("opboost drawing", run_id, names)).encode()
    return hashlib.sha256(text + np.ascontiguousarray(commitments).tobytes()).digest()


def public_bits(
    run_id: str, names: tuple[str, ...], commitments: NDArray[np.uint8], random: NDArray[np.uint8]
) -> BitSource:
    """Public bits derived from the random bytes of all workers.

    Uniform if one worker's bytes are, except that whoever reveals last may leave instead, which ends the run.

    Parameters
    ----------
    run_id : str
    names : tuple of str
        Of the workers, in the order of the rows.
    commitments, random : ndarray of uint8, shape (n_workers, 32)

    Raises
    ------
    Disagreement
        If bytes are not those that their worker was committed to.
    """
    if commitments.shape != (len(names), 32) or random.shape != commitments.shape:
        raise Disagreement("the random bytes of the workers do not fit their commitments. Nothing was released")
    for name, row, committed in zip(names, random, commitments, strict=True):
        if commitment(run_id, name, row.tobytes()) != committed.tobytes():
            raise Disagreement(f"the random bytes of {name} are not those it was committed to. Nothing was released")
    key = hashlib.sha256(repr(("opboost public bits", run_id, names)).encode() + random.tobytes()).digest()
    return BitSource(key, is_secure=False)


def _is_same(one: JsonValue, other: JsonValue) -> bool:
    """Whether two values are written alike: a batch of 1 tree is not one of 1.0 times all trees."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _shown(terms: Mapping[str, JsonValue], name: str) -> str:
    return readable(str(terms[name]), 80) if name in terms else "nothing"
