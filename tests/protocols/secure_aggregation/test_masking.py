"""Keys of pairs, masks and sealed texts."""

from __future__ import annotations

import numpy as np
import pytest

from protocols.errors import SumRefused
from protocols.secure_aggregation.masking import SHARE_DIGEST_BYTES, OwnKey, is_usable, mask, seal, share_digest, unseal

KEY, NONCE = bytes(range(32)), bytes(12)


def test_a_sealed_text_is_read_under_its_key_nonce_and_context_alone() -> None:
    sealed = seal(KEY, NONCE, b"text", b"context")
    assert unseal(KEY, NONCE, sealed, b"context") == b"text"
    altered = bytes([sealed[0] ^ 1]) + sealed[1:]
    for key, nonce, text, context in (
        (bytes(32), NONCE, sealed, b"context"),
        (KEY, b"another one.", sealed, b"context"),
        (KEY, NONCE, altered, b"context"),
        (KEY, NONCE, sealed, b"of another round"),
        (KEY, NONCE, b"", b"context"),
    ):
        with pytest.raises(SumRefused, match="nothing was revealed"):
            unseal(key, nonce, text, context)


def test_both_of_a_pair_have_its_keys_and_those_of_another_run_are_others() -> None:
    one, other = OwnKey(), OwnKey()
    here, there = one.pair(other.public, None, run=b"1"), other.pair(one.public, None, run=b"1")
    assert (here.masks, here.to_them, here.from_them) == (there.masks, there.from_them, there.to_them)
    assert here.masks != one.pair(other.public, None, run=b"2").masks
    assert not is_usable(bytes(32))


def test_a_mask_is_the_stream_of_its_seed() -> None:
    assert np.array_equal(mask(KEY, 5), mask(KEY, 9)[:5])
    assert not np.array_equal(mask(KEY, 5), mask(bytes(32), 5))


def test_a_digest_is_of_one_share_context_and_holder() -> None:
    share, other = bytes(range(16)), bytes(range(1, 17))
    found = [share_digest(*of) for of in ((share, b"a", 1), (other, b"a", 1), (share, b"b", 1), (share, b"a", 2))]
    assert len(set(found)) == 4
    assert found[0] == share_digest(share, b"a", 1)
    assert len(found[0]) == SHARE_DIGEST_BYTES
