"""Shamir secret sharing of 16 bytes over GF(2^128), many shares at a time.

Field and shares are those of pycryptodome's `Shamir`, the oracle of the tests, which goes share by share and bit by
bit and finds the same Lagrange coefficients again for every secret: .2 s for one of 200 workers' secrets, where 200
are due in a round. Here it is 2 ms. No step takes longer for one secret than for another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from secrets import token_bytes

import numpy as np
from numpy.typing import NDArray

SECRET_BYTES = 16
MAX_SHARES = 255

# Elements of the field, shape (n, 2): the high and the low 64 coefficients of a polynomial over GF(2).
_Elements = NDArray[np.uint64]

# Modulo x^128 + x^7 + x^2 + x + 1.
_MODULUS, _REMAINDER = (1 << 128) | 0x87, np.uint64(0x87)
_ONE, _LAST = np.uint64(1), np.uint64(63)


def split(secret: bytes, *, threshold: int, n_shares: int) -> list[bytes]:
    """Shares of 16 bytes, any `threshold` of which give the secret, and fewer nothing."""
    places, shares = _places(range(n_shares)), np.zeros((n_shares, 2), np.uint64)
    for coefficient in _elements(token_bytes(SECRET_BYTES * (threshold - 1)) + secret):
        shares = _product(shares, places, n_bits=MAX_SHARES.bit_length()) ^ coefficient
    return [_bytes(share) for share in shares]


def combine(shares: Mapping[int, bytes]) -> bytes:
    """The secret, from shares by their place in `split`'s list; garbage if one is wrong or one is lacking."""
    products = _product(_elements(b"".join(shares.values())), _lagrange(tuple(shares)))
    return _bytes(np.bitwise_xor.reduce(products))


@lru_cache(maxsize=4)
def _lagrange(holders: tuple[int, ...]) -> _Elements:
    """What the holders' shares are multiplied by, to add up to the secret. All of it is public."""
    places = _places(holders)
    above, below = np.tile(_places([0]), (2, len(places), 1))
    for other in places:
        is_other = places[:, 1] != other[1]
        above[is_other] = _product(above[is_other], other[None], n_bits=MAX_SHARES.bit_length())
        below[is_other] = _product(below[is_other], places[is_other] ^ other, n_bits=MAX_SHARES.bit_length())
    inverses = b"".join(_inverse(int.from_bytes(_bytes(one))).to_bytes(SECRET_BYTES) for one in below)
    return _product(above, _elements(inverses))


def _product(elements: _Elements, factors: _Elements, *, n_bits: int = 128) -> _Elements:
    """Elements times factors of so many coefficients, one by one."""
    total = np.zeros_like(elements)
    for bit in range(n_bits):
        is_set = (factors[:, 1 - bit // 64] >> np.uint64(bit % 64)) & _ONE
        total ^= elements * is_set[:, None]
        high, low = elements.T
        elements = np.stack([(high << _ONE) | (low >> _LAST), (low << _ONE) ^ ((high >> _LAST) * _REMAINDER)], axis=1)
    return total


def _inverse(element: int) -> int:
    """The inverse of an element, by Euclid's algorithm."""
    large, small, of_large, of_small = _MODULUS, element, 0, 1
    while small > 1:
        shift = large.bit_length() - small.bit_length()
        if shift < 0:
            large, small, of_large, of_small = small, large, of_small, of_large
        else:
            large, of_large = large ^ small << shift, of_large ^ of_small << shift
    return of_small


def _places(holders: Iterable[int]) -> _Elements:
    """Where the shares of these holders are on the polynomial; the secret is at 0."""
    return np.array([(0, holder + 1) for holder in holders], dtype=np.uint64)


def _elements(data: bytes) -> _Elements:
    return np.frombuffer(data, ">u8").astype(np.uint64).reshape(-1, 2)


def _bytes(element: NDArray[np.uint64]) -> bytes:
    return element.astype(">u8").tobytes()
