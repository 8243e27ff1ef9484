"""Blinding of record ids, as points of the curve P-256 or as keyed hashes, and matching of blinded ids.

Nothing else imports openmined-psi.
The package multiplies points in compiled code and lets other threads run meanwhile. Its own protocol ends with the
indices of common ids in the *client's* list; we also need to know which entries of the other list they are, so that
the other side can be told. Hence both lists are put under both keys (`x -> H(x)^ab`, the same whichever key comes
first) with the package's two operations on points, and compared: the classical protocol of Meadows (1986) and
Huberman, Franklin and Hogg (1999), which the package is built on.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from protocols.errors import DecodeError, UnexpectedMessage
from protocols.messages.fields import ByteRows

# A compressed point of P-256.
POINT_BYTES = 33

# HMAC-SHA256.
HASH_BYTES = 32

# Threads to multiply with: more than this has never been measured.
MAX_THREADS = 8

IdPositions = NDArray[np.int64]


class Cipher:
    """Commutative cipher on P-256 with a fresh secret key, which never leaves this object.

    Parameters
    ----------
    n_workers : int, optional
        Threads to multiply with; by default as many as there are cores, and at most `MAX_THREADS`.

    Notes
    -----
    Privacy: a blinded id is a pseudo-random point to whoever lacks the key (decisional Diffie-Hellman on P-256, the
    hash onto the curve taken as random). Two ciphers have nothing in common, so what two runs send cannot be linked.
    """

    def __init__(self, *, n_workers: int | None = None) -> None:
        from private_set_intersection.python import Request, client, server

        self._make_request = Request
        first = client.CreateWithNewKey(True)
        # The package's objects hold scratch memory, so every thread has its own.
        n_workers = n_workers or min(os.cpu_count() or 1, MAX_THREADS)
        key = first.GetPrivateKeyBytes()
        self._clients = [client.CreateFromKey(key, True) for _ in range(n_workers)]
        self._servers = [server.CreateFromKey(key, True) for _ in range(n_workers)]
        self._pool = ThreadPoolExecutor(n_workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def blind(self, ids: Sequence[bytes]) -> ByteRows:
        """Blind ids with this key, in their order."""
        pieces = self._pool.map(lambda worker, piece: worker.CreateRequest(piece), self._clients, self._split(ids))
        return np.concatenate([_rows(piece.encrypted_elements) for piece in pieces])

    def reblind(self, rows: ByteRows) -> ByteRows:
        """Blind points with this key that are already blinded with another one, in their order.

        Raises
        ------
        DecodeError
            If one of them is no point of the curve.
        """
        if rows.shape[1] != POINT_BYTES:
            raise DecodeError(f"a blinded id has {POINT_BYTES} bytes; found {rows.shape[1]}")
        points = [row.tobytes() for row in rows]
        try:
            pieces = list(self._pool.map(self._multiply, self._servers, self._split(points)))
        except RuntimeError:
            # The package's own words are dropped: they belong to its cryptographic library.
            raise DecodeError("a blinded id is not a point of the curve") from None
        return np.concatenate([_rows(piece.encrypted_elements) for piece in pieces])

    def _multiply(self, worker: Any, points: Sequence[bytes]) -> Any:
        return worker.ProcessRequest(self._make_request(reveal_intersection=True, encrypted_elements=points))

    def _split(self, items: Sequence[bytes]) -> list[list[bytes]]:
        """One run of items per worker, in their order."""
        n_each = -(-len(items) // len(self._clients))
        return [list(items[start : start + n_each]) for start in range(0, len(items), n_each)]


def hashed(ids: Sequence[bytes], secret: bytes, seed: bytes) -> ByteRows:
    """Keyed hashes of ids, in their order: useless without the secret, a list to try ids on with it."""
    key = hmac.digest(secret, b"opboost hashed ids" + seed, "sha256")
    digests = b"".join(hmac.digest(key, record_id, "sha256") for record_id in ids)
    return np.frombuffer(digests, np.uint8).reshape(-1, HASH_BYTES)


def match(mine: ByteRows, theirs: ByteRows, peer: str) -> IdPositions:
    """Match ids: position of each own id in the peer's list, or -1."""
    own, others = _as_words(mine), _as_words(theirs)
    order = np.argsort(others, kind="stable")
    others = others[order]
    if (others[1:] == others[:-1]).any():
        raise UnexpectedMessage(f"{peer} sent an id more than once")
    at = np.minimum(np.searchsorted(others, own), len(others) - 1)
    where = np.where(others[at] == own, order[at], -1)
    met = where[where >= 0]
    if len(np.unique(met)) < len(met):
        raise UnexpectedMessage(f"{peer} made two ids of this party one")
    return where


def _rows(elements: Sequence[bytes]) -> ByteRows:
    return np.frombuffer(b"".join(elements), np.uint8).reshape(-1, POINT_BYTES)


def _as_words(rows: ByteRows) -> NDArray[np.bytes_]:
    """Rows as words of one width, which are equal exactly if all their bytes are."""
    return np.ascontiguousarray(rows).view(f"S{rows.shape[1]}").reshape(-1)
