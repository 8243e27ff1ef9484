"""Key streams against counters encrypted one by one."""

import os

import numpy as np
from Crypto.Cipher import AES

from protocols.key_stream import key_stream


def test_a_stream_is_the_encrypted_counter() -> None:
    key = os.urandom(32)
    counters = b"".join(number.to_bytes(16, "big") for number in range(100))
    assert key_stream(key).update(bytes(1600)) == AES.new(key, AES.MODE_ECB).encrypt(counters)


def test_pieces_continue_each_other_in_place() -> None:
    key, whole = os.urandom(32), np.zeros(101, np.uint8)
    stream = key_stream(key)
    for piece in np.split(whole, [7, 50]):
        stream.update_into(piece.data, piece.data)
    assert whole.tobytes() == key_stream(key).update(bytes(101))
