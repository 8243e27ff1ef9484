"""Key streams of AES-256 in counter mode, for masks and oblivious transfers."""

from __future__ import annotations

from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes


def key_stream(key: bytes) -> CipherContext:
    """Open the stream of a key, from its beginning: what it encrypts is added to the next bytes of the stream."""
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
