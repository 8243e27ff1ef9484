"""Blinding of record ids, as points of the curve P-256 or as keyed hashes, and matching of blinded ids.

Nothing else imports openmined-psi, which multiplies points in compiled code and lets other threads run meanwhile. Its
own protocol ends with the indices of common ids in the *client's* list; we also need to know which entries of the other
list they are, so that the other side can be told. Hence only its two operations on points are used
(`protocols.alignment.curve_prf`, `protocols.alignment.id_proof`).
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from protocols.alignment.id_chunks import sorted_digests
from protocols.alignment.sorted_rows import Ascending, ExternalSort, IdPositions, as_words
from protocols.errors import DecodeError, UnexpectedMessage
from protocols.messages.fields import ByteRows
from protocols.private_files import temporary_file

# A compressed point of P-256.
POINT_BYTES = 33

# Number of points of P-256.
CURVE_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551

# Bytes of the values that ids are compared by: of 2^30 ids on each side, two are alike by chance with a probability
# below 2^-67.
VALUE_BYTES = 16

# Matches that are read from disk at a time.
_MATCHES_BYTES = 1 << 20

# Threads to multiply with: more than this has never been measured.
MAX_THREADS = 8


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
    hash onto the curve taken as random). Keys are independent, so messages of two runs under fresh keys cannot be
    linked.
    """

    def __init__(self, *, n_workers: int | None = None, key: bytes | None = None) -> None:
        from private_set_intersection.python import Request, client

        self._make_request = Request
        # The package's objects hold scratch memory, so every thread has its own.
        n_workers = n_workers or min(os.cpu_count() or 1, MAX_THREADS)
        first = client.CreateFromKey(key, True) if key else client.CreateWithNewKey(True)
        self.key: bytes = key or first.GetPrivateKeyBytes()
        self._clients = [first, *(client.CreateFromKey(self.key, True) for _ in range(n_workers - 1))]
        self._pool = ThreadPoolExecutor(n_workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    # Made on demand: each object takes 2 ms to make, and no caller needs both kinds.
    @cached_property
    def _servers(self) -> list[Any]:
        return self._servers_with(self.key)

    @cached_property
    def _inverse_servers(self) -> list[Any]:
        return self._servers_with(pow(int.from_bytes(self.key, "big"), -1, CURVE_ORDER).to_bytes(len(self.key), "big"))

    def _servers_with(self, key: bytes) -> list[Any]:
        from private_set_intersection.python import server

        return [server.CreateFromKey(key, True) for _ in self._clients]

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
        return self._multiplied(self._inverse_servers, rows)

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


def hashed(ids: Sequence[bytes], secret: bytes, seed: bytes) -> ExternalSort:
    """Keyed hashes of ids: useless without the secret, a list to try ids on with it."""
    key = hmac.digest(secret, b"opboost hashed ids" + seed, "sha256")
    return sorted_digests(ids, lambda record_id: hmac.digest(key, record_id, "sha256"), VALUE_BYTES)


def match_ascending(
    mine: Ascending, chunks: Iterable[tuple[int, ByteRows]], peer: str
) -> Iterator[tuple[IdPositions, IdPositions]]:
    """Match ids: positions of own ones that are among the peer's, and theirs, which ascend and come by chunks.

    Raises
    ------
    UnexpectedMessage
        If the peer's values do not ascend, as distinct ones that are sorted do.
    """
    own = mine.ascending()
    positions, left, last = np.empty(0, np.int64), np.empty(0, "S1"), np.empty(0, "S1")
    for start, rows in chunks:
        others = as_words(rows)
        ascending = np.concatenate([last, others])
        if (ascending[1:] <= ascending[:-1]).any():
            raise UnexpectedMessage(f"{peer} sent an id more than once, or ids out of order")
        last = others[-1:]
        while True:
            n_here = int(np.searchsorted(left, others[-1], "right"))
            at = np.searchsorted(others, left[:n_here])
            is_met = others[at] == left[:n_here]
            yield positions[:n_here][is_met], start + at[is_met]
            positions, left = positions[n_here:], left[n_here:]
            if len(left) or (piece := next(own, None)) is None:
                break
            positions, left = piece[0], as_words(piece[1])


class MatchedIds:
    """Own ids that a peer knows, and which of its ids they are, on disk.

    Parameters
    ----------
    matches : iterable of pair of ndarray of int64
        As from `match_ascending`.
    """

    def __init__(self, matches: Iterable[tuple[IdPositions, IdPositions]]) -> None:
        self._file = temporary_file(self)
        for own, theirs in matches:
            self._file.write(np.stack([own, theirs], axis=1).tobytes())

    def __iter__(self) -> Iterator[tuple[IdPositions, IdPositions]]:
        self._file.seek(0)
        while content := self._file.read(_MATCHES_BYTES):
            pairs = np.frombuffer(content, np.int64).reshape(-1, 2)
            yield pairs[:, 0], pairs[:, 1]

    def flags(self, is_common: NDArray[np.bool_], size: int, n_each: int) -> Iterator[NDArray[np.bool_]]:
        """Which of the peer's ids, so many at a time, are own ones that are common."""
        pieces, own, theirs = iter(self), np.empty(0, np.int64), np.empty(0, np.int64)
        for start in range(0, size, n_each):
            flags = np.zeros(min(n_each, size - start), np.bool_)
            while True:
                n_here = int(np.searchsorted(theirs, start + n_each))
                flags[theirs[:n_here][is_common[own[:n_here]]] - start] = True
                own, theirs = own[n_here:], theirs[n_here:]
                if len(theirs) or (piece := next(pieces, None)) is None:
                    break
                own, theirs = piece
            yield flags


def _rows(elements: Sequence[bytes]) -> ByteRows:
    return np.frombuffer(b"".join(elements), np.uint8).reshape(-1, POINT_BYTES)
