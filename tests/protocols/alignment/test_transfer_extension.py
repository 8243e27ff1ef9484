"""Transfer extension: rows differ by masked codewords, the code is as far apart as said, and cheating is found."""

from __future__ import annotations

import secrets

import numpy as np
import pytest

from protocols.alignment.key_value_store import VALUE_BITS, random_entries
from protocols.alignment.transfer_extension import (
    CHECK_BYTES,
    CODE,
    GENERATOR,
    N_TRANSFERS,
    N_VALUE_COLUMNS,
    ROW_BYTES,
    Encoder,
    Keeper,
    _hashes,
    n_all_rows,
)
from protocols.errors import DecodeError

CONTEXT = bytes(36)


def pair() -> tuple[Encoder, Keeper]:
    """Both sides, given base transfers by somebody both trust."""
    keys = [secrets.token_bytes(16) for _ in range(2 * N_TRANSFERS)]
    choices = [secrets.randbits(1) for _ in range(N_TRANSFERS)]
    return Encoder(keys), Keeper(choices, [keys[2 * at + choice] for at, choice in enumerate(choices)])


def test_rows_of_both_sides_differ_by_the_masked_codeword_of_their_value() -> None:
    encoder, keeper = pair()
    for n_rows in (1, 128, 300):
        values = random_entries(n_rows)
        rows, columns, tags = encoder.extend(values, CONTEXT)
        assert rows.shape == (n_all_rows(n_rows), ROW_BYTES)
        assert columns.shape == (N_TRANSFERS, n_all_rows(n_rows) // 8)
        assert tags.shape == (N_TRANSFERS + N_VALUE_COLUMNS, CHECK_BYTES)
        kept = keeper.extend(columns, tags, CONTEXT)
        np.testing.assert_array_equal(rows[:n_rows], kept[:n_rows] ^ keeper.codewords(values))
        others = random_entries(n_rows)
        assert (rows[:n_rows] != kept[:n_rows] ^ keeper.codewords(others)).any(axis=1).all()


def test_the_code_is_that_of_bose_chaudhuri_and_hocquenghem_with_distance_171() -> None:
    """The generator divides x^511 - 1 and has the roots a, ..., a^170: by their bound, distances are 171 or more."""
    powers = [1]
    for _ in range(510):
        power = powers[-1] << 1
        powers.append(power ^ 0b1000010001 if power >> 9 else power)
    assert len(set(powers)) == 511
    terms = [at for at in range(N_TRANSFERS) if GENERATOR >> at & 1]
    for root in range(1, 171):
        assert not np.bitwise_xor.reduce([powers[root * at % 511] for at in terms])
    rest = (1 << 511) | 1
    while rest.bit_length() >= GENERATOR.bit_length():
        rest ^= GENERATOR << (rest.bit_length() - GENERATOR.bit_length())
    assert rest == 0
    assert GENERATOR.bit_length() - 1 == N_TRANSFERS - VALUE_BITS
    for bit, row in enumerate(CODE):
        assert int.from_bytes(row.tobytes(), "little") == (GENERATOR << bit if bit < VALUE_BITS else 0)


def test_sampled_codewords_are_far_apart() -> None:
    rows = np.random.default_rng(1).integers(0, 2, (2000, VALUE_BITS))
    words = rows @ np.unpackbits(CODE[:VALUE_BITS], axis=1, bitorder="little").astype(np.int64) % 2
    assert words[rows.any(axis=1)].sum(axis=1).min() >= 171


def multiplied(left: int, right: int) -> int:
    """Product in GF(2^128) as GHASH has it (NIST SP 800-38D, 6.3), bit by bit."""
    product, power = 0, left
    for bit in range(127, -1, -1):
        if right >> bit & 1:
            product ^= power
        power = (power >> 1) ^ (0xE1 << 120 if power & 1 else 0)
    return product


def test_the_linear_hash_is_a_polynomial_over_gf_2_128() -> None:
    from Crypto.Cipher import AES

    key = bytes(range(16))
    point = int.from_bytes(AES.new(key, AES.MODE_ECB).encrypt(bytes(16)), "big")
    columns = np.random.default_rng(2).integers(0, 256, (5, 48), np.uint8)
    for column, found in zip(columns, _hashes(columns, key), strict=True):
        total = 0
        for block in column.reshape(-1, 16):
            total = multiplied(total ^ int.from_bytes(block.tobytes(), "big"), point)
        # The block of lengths that follows is the same for all, and gone from the difference of two tags.
        assert found.tobytes() == multiplied(total, point).to_bytes(16, "big")


@pytest.mark.parametrize("where", ["columns", "tags of rows", "tags of values"])
def test_a_change_anywhere_fails_the_check(where: str) -> None:
    encoder, keeper = pair()
    _, columns, tags = encoder.extend(random_entries(100), CONTEXT)
    match where:
        case "columns":
            # That s chooses none of them has a chance of 2^-40.
            columns[secrets.SystemRandom().sample(range(N_TRANSFERS), 40), 0] ^= 1
        case "tags of rows":
            tags[0, 0] ^= 1
        case "tags of values":
            tags[N_TRANSFERS + 3, 5] ^= 1
    with pytest.raises(DecodeError, match="does not pass its check"):
        keeper.extend(columns, tags, CONTEXT)


def test_a_matrix_of_another_place_or_of_before_fails_the_check() -> None:
    encoder, keeper = pair()
    _, columns, tags = encoder.extend(random_entries(100), CONTEXT)
    with pytest.raises(DecodeError, match="does not pass its check"):
        keeper.extend(columns, tags, bytes(35) + b"1")
    encoder, keeper = pair()
    _, columns, tags = encoder.extend(random_entries(100), CONTEXT)
    keeper.extend(columns, tags, CONTEXT)
    with pytest.raises(DecodeError, match="does not pass its check"):
        keeper.extend(columns, tags, CONTEXT)


def test_without_the_check_an_encoder_that_cheats_learns_a_bit_of_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: one column is flipped in one row, and whether the keeper's row changes is the bit."""
    monkeypatch.setattr(np, "array_equal", lambda one, other: True)
    encoder, keeper = pair()
    values = random_entries(100)
    rows, columns, tags = encoder.extend(values, CONTEXT)
    columns = columns.copy()
    columns[:64, 0] ^= 1
    changed = (rows[:1] ^ keeper.codewords(values[:1]) ^ keeper.extend(columns, tags, CONTEXT)[:1])[0, :8]
    assert np.unpackbits(changed, bitorder="little").tolist() == (keeper._masks[:64, 0] // 255).tolist()
