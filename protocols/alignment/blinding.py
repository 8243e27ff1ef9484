"""Blinding of record ids, as points of the curve P-256 or as keyed hashes, and matching of blinded ids.

Nothing else imports openmined-psi, which multiplies points in compiled code and lets other threads run meanwhile. Its
own protocol ends with the indices of common ids in the *client's* list; we also need to know which entries of the other
list they are, so that the other side can be told. Hence only its two operations on points are used
(`protocols.alignment.curve_prf`, `protocols.alignment.id_proof`).
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from protocols.alignment.id_chunks import digest_rows
from protocols.errors import DecodeError, UnexpectedMessage
from protocols.messages.fields import ByteRows

# A compressed point of P-256.
POINT_BYTES = 33

# Number of points of P-256.
CURVE_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551

# What ids are compared by: two of 2^26 ids on each side are alike by chance with a probability below 2^-75.
VALUE_BYTES = 16

# Threads to multiply with: more than this has never been measured.
MAX_THREADS = 8

IdPositions = NDArray[np.int64]


class Cipher:
    """Commutative cipher on P-256.

    Parameters
    ----------
    n_workers : int, optional
        Threads to multiply with; by default as many as there are cores, and at most `MAX_THREADS`.
    key : bytes, optional
        By default a fresh one.

    Notes
    -----
    Privacy: a blinded id is a pseudo-random point to whoever lacks the key (decisional Diffie-Hellman on P-256, the
    hash onto the curve taken as random). Two keys have nothing in common, so what two runs send under fresh keys cannot
    be linked.
    """

    def __init__(self, *, n_workers: int | None = None, key: bytes | None = None) -> None:
        from private_set_intersection.python import Request, client, server

        self._make_request = Request
        # The package's objects hold scratch memory, so every thread has its own.
        n_workers = n_workers or min(os.cpu_count() or 1, MAX_THREADS)
        self.key: bytes = key or client.CreateWithNewKey(True).GetPrivateKeyBytes()
        root = pow(int.from_bytes(self.key, "big"), -1, CURVE_ORDER).to_bytes(len(self.key), "big")
        self._clients = [client.CreateFromKey(self.key, True) for _ in range(n_workers)]
        self._servers = [server.CreateFromKey(self.key, True) for _ in range(n_workers)]
        self._roots = [server.CreateFromKey(root, True) for _ in range(n_workers)]
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
        return self._multiplied(self._servers, rows)

    def unblind(self, rows: ByteRows) -> ByteRows:
        """Take this key's blinding off points, in their order; raises as `reblind` does."""
        return self._multiplied(self._roots, rows)

    def _multiplied(self, workers: Sequence[Any], rows: ByteRows) -> ByteRows:
        if rows.shape[1] != POINT_BYTES:
            raise DecodeError(f"a blinded id has {POINT_BYTES} bytes; found {rows.shape[1]}")
        points = [row.tobytes() for row in rows]
        try:
            pieces = list(self._pool.map(self._multiply, workers, self._split(points)))
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
    return digest_rows(ids, lambda record_id: hmac.digest(key, record_id, "sha256"), VALUE_BYTES)


def match_ascending(mine: ByteRows, chunks: Iterable[tuple[int, ByteRows]], peer: str) -> IdPositions:
    """Match ids: position of each own value among the peer's, which ascend and come by chunks; -1 where it is not.

    Sorts the own values in place.

    Raises
    ------
    UnexpectedMessage
        If the peer's values do not ascend, as distinct ones that are sorted do.
    """
    own = _as_words(mine)
    order = np.argsort(own)
    own.sort()
    where, last = np.full(len(own), -1, np.int64), np.zeros(0, own.dtype)
    for start, rows in chunks:
        others = _as_words(rows)
        ascending = np.concatenate([last, others])
        if (ascending[1:] <= ascending[:-1]).any():
            raise UnexpectedMessage(f"{peer} sent an id more than once, or ids out of order")
        last = others[-1:]
        here = slice(np.searchsorted(own, others[0]), np.searchsorted(own, last[0], "right"))
        at = np.searchsorted(others, own[here])
        is_met = others[at] == own[here]
        where[order[here][is_met]] = start + at[is_met]
    return where


def ascending_order(rows: ByteRows) -> IdPositions:
    """The order in which rows ascend."""
    return np.argsort(_as_words(rows))


def _rows(elements: Sequence[bytes]) -> ByteRows:
    return np.frombuffer(b"".join(elements), np.uint8).reshape(-1, POINT_BYTES)


def _as_words(rows: ByteRows) -> NDArray[np.bytes_]:
    """Rows as words of one width, which are equal exactly if all their bytes are."""
    return np.ascontiguousarray(rows).view(f"S{rows.shape[1]}").reshape(-1)
