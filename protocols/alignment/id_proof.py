"""Password-authenticated key exchange (SPEKE) whose password is the set of record ids.

It proves to each side that the other one holds the same ids, and shows neither of them an id::

    greeting   point = H(password) ^ own key, which is fresh in every conversation
    then       key   = (the other side's point) ^ own key, the same exactly if the passwords are
    B, A       tag   = HMAC-SHA256(key, role of the sender, run, names and points of both)

A tag names its sender's role and both points, so one that is sent back or kept from an earlier attempt proves nothing.
Whoever lacks the ids can test one guess of the *whole set* per conversation, and nothing afterwards: a plain digest,
salted or not, would let it try out guesses for as long as it likes (Jablon 1996; ISO/IEC 11770-4).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from protocols.alignment.blinding import Cipher
from protocols.errors import DecodeError
from protocols.messages.id_alignment import IdConfirmation
from protocols.messages.vertical import Hello


def password_of(id_digest: str, order: NDArray[np.int64] | None = None) -> bytes:
    """Password of the key exchange: the ids, and the order of their ranks that both sides' shares made."""
    order_bytes = b"" if order is None else order.astype("<i8").tobytes()
    return hashlib.sha256(b"opboost ids" + hashlib.sha256(id_digest.encode()).digest() + order_bytes).digest()


class IdProof:
    """One side of the exchange, for one conversation.

    Parameters
    ----------
    password : bytes
        See `password_of`.
    cipher : Cipher
        With a fresh key.

    Attributes
    ----------
    point : bytes
        For this side's `Hello`.
    """

    def __init__(self, password: bytes, cipher: Cipher) -> None:
        self._cipher = cipher
        self.point = cipher.blind([password]).tobytes()

    def confirmations(self, mine: Hello, theirs: Hello) -> tuple[IdConfirmation, IdConfirmation]:
        """Confirmations: this side's own, and the one the other side sends if it holds the same ids.

        Raises
        ------
        DecodeError
            If the other side's `Hello` holds no point of the curve.
        """
        peer_point = np.frombuffer(theirs.id_point or b"", np.uint8).reshape(1, -1)
        try:
            key = self._cipher.reblind(peer_point).tobytes()
        except DecodeError as error:
            raise DecodeError(f"{theirs.party} sent ids that cannot be compared: {error}") from None
        hellos = sorted((mine, theirs), key=lambda hello: hello.role)
        fields = [
            field for hello in hellos for field in (hello.run_id.encode(), hello.party.encode(), hello.id_point or b"")
        ]
        transcript = b"".join(len(field).to_bytes(4, "little") + field for field in fields)
        return _confirmation(key, mine, transcript), _confirmation(key, theirs, transcript)


@contextmanager
def id_proof(password: bytes | None) -> Iterator[IdProof | None]:
    """A proof for one conversation; None where there is no password."""
    if password is None:
        yield None
        return
    with Cipher(n_workers=1) as cipher:
        yield IdProof(password, cipher)


def is_same(found: IdConfirmation, due: IdConfirmation) -> bool:
    """Whether a confirmation is the one that is due, compared in constant time."""
    return hmac.compare_digest(found.tag, due.tag)


def _confirmation(key: bytes, sender: Hello, transcript: bytes) -> IdConfirmation:
    return IdConfirmation(tag=hmac.digest(key, b"opboost " + sender.role.encode() + b" " + transcript, "sha256"))
