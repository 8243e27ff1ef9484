"""Random 1-of-2 oblivious transfers in the group ristretto255 (Masny and Rindal, CCS 2019): one message each way.

Of each pair of points r0, r1 that the chooser sends, it knows the logarithm b of one of ``r0 + H(0, r1)`` and
``r1 + H(1, r0)``, and never of both. The other side answers with ``m = a G`` and derives both keys, from
``a (r0 + H(0, r1))`` and ``a (r1 + H(1, r0))``; the chooser derives the one of its choice from ``b m``. Which of the
two it is shows nowhere: both points are random. Secure against a side that deviates, if the computational
Diffie-Hellman problem is hard and hashes are random. Every hash names its place and the conversation.

Nothing else imports rbcl, which binds libsodium. Its additions do not say that a point is none, so each one is checked.
It copies libsodium into the directory for temporary files whenever a process imports it, and leaves it there; here the
copy is removed as soon as it is loaded.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType

from protocols.errors import DecodeError

ELEMENT_BYTES = 32
KEY_BYTES = 16


class Chooser:
    """The side that chooses: it learns one key of each pair, of its random choice.

    Parameters
    ----------
    n_transfers : int
    context : bytes
        Names the conversation.

    Attributes
    ----------
    choices : list of int
        0 or 1 per transfer.
    points : list of bytes
        For the other side: two per transfer.
    """

    def __init__(self, n_transfers: int, context: bytes) -> None:
        group = load_group()
        self._context = context
        self.choices = [secrets.randbits(1) for _ in range(n_transfers)]
        self._scalars = [group.crypto_core_ristretto255_scalar_random() for _ in range(n_transfers)]
        self.points: list[bytes] = []
        for place, (choice, scalar) in enumerate(zip(self.choices, self._scalars, strict=True)):
            other = group.crypto_core_ristretto255_random()
            known = group.crypto_core_ristretto255_sub(
                group.crypto_scalarmult_ristretto255_base(scalar), _hashed(context, place, choice, other)
            )
            self.points += [other, known] if choice else [known, other]

    def keys(self, answer: bytes) -> list[bytes]:
        """The key of each choice.

        Raises
        ------
        DecodeError
            If the answer is no point.
        """
        return [
            _key(_times(scalar, answer), self._context, 2 * place + choice, answer)
            for place, (choice, scalar) in enumerate(zip(self.choices, self._scalars, strict=True))
        ]


def answer_points(points: Sequence[bytes], context: bytes) -> tuple[bytes, list[bytes]]:
    """Answer for the chooser, and two keys per transfer.

    Raises
    ------
    DecodeError
        If one of them is no point.
    """
    group = load_group()
    if not all(map(group.crypto_core_ristretto255_is_valid_point, points)):
        raise DecodeError("a transfer's point is not one of the group")
    secret = group.crypto_core_ristretto255_scalar_random()
    answer, keys = group.crypto_scalarmult_ristretto255_base(secret), []
    for at, point in enumerate(points):
        hidden = _hashed(context, at // 2, at % 2, points[at ^ 1])
        both = group.crypto_core_ristretto255_add(point, hidden)
        keys.append(_key(_times(secret, both), context, at, answer))
    return answer, keys


@cache
def load_group() -> ModuleType:
    """The library that computes in the group, loaded once in a process.

    Raises
    ------
    OSError
        If it cannot be copied to the directory for temporary files, or not be loaded from there.
    """
    import rbcl
    from rbcl._sodium import lib_path

    with suppress(OSError):  # Windows keeps the file of a library that is loaded.
        Path(lib_path).unlink()
    return rbcl


def _times(scalar: bytes, point: bytes) -> bytes:
    try:
        product: bytes = load_group().crypto_scalarmult_ristretto255(scalar, point)
    except RuntimeError:
        # The library's own words are dropped.
        raise DecodeError("a transfer's point is not one of the group") from None
    return product


def _hashed(context: bytes, place: int, choice: int, point: bytes) -> bytes:
    index = (2 * place + choice).to_bytes(4, "little")
    digest = hashlib.blake2b(index + point, key=context, person=b"transfer point").digest()
    hashed: bytes = load_group().crypto_core_ristretto255_from_hash(digest)
    return hashed


def _key(shared: bytes, context: bytes, index: int, answer: bytes) -> bytes:
    place = index.to_bytes(4, "little")
    return hashlib.blake2b(place + shared + answer, digest_size=KEY_BYTES, key=context, person=b"transfer key").digest()
