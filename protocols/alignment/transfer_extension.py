"""Oblivious transfer extension by a linear code, with a check (Orru, Orsini and Scholl, CT-RSA 2017).

511 base transfers, whose chooser has the bits s, become as many rows as are asked for. The *encoder* brings a value of
76 bits per row and gets a row t; the *keeper* of s gets q = t + C(value) * s, where C is the BCH code [511, 76, 171]
and the product is taken bit by bit. Sums of rows keep this form, for the sums of their values.

For every other value v, q + C(v) * s differs from t by at least 171 bits of s, which the encoder does not know: hashed,
it is a random number to the encoder. The keeper sees one-time pads.

An encoder that sent something else than codewords could learn s by its effects on what follows. So each matrix comes
with linear hashes over GF(2^128) (GHASH) of the columns of its rows t and of its values, under a key that is a digest
of the very matrix; the keeper compares them with the hashes of q. 128 random rows hide what the hashes would tell. A
matrix that differs from codewords in c columns passes with a chance of 2^-c, which is that of guessing c bits of s,
beside some 2^-115 per digest that the encoder tries; with c = 40 bits known, 131 of those that set two codewords apart
are not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import CipherContext
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from protocols.alignment.bit_matrices import BitMatrix, multiply, transpose
from protocols.alignment.key_value_store import random_entries
from protocols.errors import DecodeError
from protocols.key_stream import key_stream

N_TRANSFERS = 511

# Bytes of a row: of 512 columns, the last of which is empty.
ROW_BYTES = 64

# Random rows at the end of each matrix: one block of the linear hash.
N_MASKS = 128

CHECK_BYTES = 16

# Coefficients of x^0, x^1, ... of the code's generator: the least common multiple of the minimal polynomials of
# a, a^2, ..., a^170, where a^9 = a^4 + 1.
GENERATOR = int(
    "ad98bf9547f24b8a971bba5f0c3b524c0f6f91dbe79d89b207848ffad3b37791732ac9184a83a6e7cf2e2c8aaaae28d8c59a7e1153e45", 16
)

# Bits of a value, and four that are never set.
N_VALUE_COLUMNS = 80

# The codeword of each bit of a value.
CODE = np.frombuffer(
    b"".join((GENERATOR << bit if bit < 76 else 0).to_bytes(ROW_BYTES, "little") for bit in range(N_VALUE_COLUMNS)),
    np.uint8,
).reshape(N_VALUE_COLUMNS, ROW_BYTES)

_CODE_COLUMNS = transpose(CODE)


def n_all_rows(n_rows: int) -> int:
    """Rows of a matrix for so many values: whole blocks of the linear hash, and the masks."""
    return N_MASKS * (-(-n_rows // N_MASKS) + 1)


class Encoder:
    """The side that brings values.

    Parameters
    ----------
    keys : sequence of bytes
        Two per base transfer.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._zeros, self._ones = _streams(keys[::2]), _streams(keys[1::2])

    def extend(self, values: BitMatrix, context: bytes) -> tuple[BitMatrix, BitMatrix, BitMatrix]:
        """Rows t of values, and what the keeper needs to have its own.

        Parameters
        ----------
        values : ndarray of uint8, shape (n_rows, ENTRY_BYTES)
        context : bytes
            Names the matrix.

        Returns
        -------
        rows : ndarray of uint8, shape (n_all_rows(n_rows), ROW_BYTES)
        columns : ndarray of uint8, shape (N_TRANSFERS, n_all_rows(n_rows) / 8)
        tags : ndarray of uint8, shape (N_TRANSFERS + N_VALUE_COLUMNS, CHECK_BYTES)
        """
        n_all = n_all_rows(len(values))
        value_columns = transpose(np.concatenate([values, random_entries(n_all - len(values))]))[:N_VALUE_COLUMNS]
        own = _expand(self._zeros, n_all // 8)
        columns = multiply(_CODE_COLUMNS, value_columns)
        columns ^= own
        columns ^= _expand(self._ones, n_all // 8)
        columns = columns[:N_TRANSFERS]
        key = _hash_key(columns, context)
        return transpose(own), columns, np.concatenate([_hashes(own[:N_TRANSFERS], key), _hashes(value_columns, key)])


class Keeper:
    """The side that keeps the bits s.

    Parameters
    ----------
    choices : sequence of int
        The bits s.
    keys : sequence of bytes
        One per base transfer, of its choice.
    """

    def __init__(self, choices: Sequence[int], keys: Sequence[bytes]) -> None:
        self._streams = _streams(keys)
        bits = np.array([*choices, 0], np.uint8)
        self._masks = (bits * 255)[:, None]
        self._code = CODE & np.packbits(bits, bitorder="little")

    def codewords(self, values: BitMatrix) -> BitMatrix:
        """C(value) * s of each value."""
        return multiply(values[:, : N_VALUE_COLUMNS // 8], self._code)

    def extend(self, columns: BitMatrix, tags: BitMatrix, context: bytes) -> BitMatrix:
        """Rows q.

        Raises
        ------
        DecodeError
            If the columns do not hold codewords.
        """
        own = _expand(self._streams, columns.shape[1])
        own[:N_TRANSFERS] ^= columns & self._masks[:N_TRANSFERS]
        theirs, values = tags[:N_TRANSFERS], tags[N_TRANSFERS:]
        due = theirs ^ (multiply(_CODE_COLUMNS, values) & self._masks)[:N_TRANSFERS]
        if not np.array_equal(_hashes(own[:N_TRANSFERS], _hash_key(columns, context)), due):
            raise DecodeError("a table of hidden ids does not pass its check")
        return transpose(own)


def _streams(keys: Sequence[bytes]) -> list[CipherContext]:
    return [key_stream(key) for key in keys]


def _expand(streams: Sequence[CipherContext], n_bytes: int) -> BitMatrix:
    """The next bytes of each stream, and an empty column."""
    columns, zeros = np.zeros((len(streams) + 1, n_bytes), np.uint8), bytes(n_bytes)
    for stream, column in zip(streams, columns, strict=False):
        stream.update_into(zeros, column.data)
    return columns


def _hash_key(columns: BitMatrix, context: bytes) -> bytes:
    return hashlib.blake2b(columns.data, digest_size=CHECK_BYTES, key=context, person=b"transfer check").digest()


def _hashes(columns: BitMatrix, key: bytes) -> BitMatrix:
    """Linear hash of each column over GF(2^128): two tags of one key and nonce differ by it, if one is of zeros."""
    cipher, zeros = AESGCM(key), bytes(columns.shape[1])
    tags = b"".join(cipher.encrypt(bytes(12), b"", column) for column in (zeros, *map(np.ndarray.tobytes, columns)))
    rows = np.frombuffer(tags, np.uint8).reshape(-1, CHECK_BYTES)
    return rows[1:] ^ rows[0]
