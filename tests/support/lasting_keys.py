"""The keys by which workers know each other."""

from __future__ import annotations

from Crypto.PublicKey import ECC

from protocols.transport.keys import KeyPair


def lasting(name: str) -> KeyPair:
    key = ECC.construct(curve="Curve25519", seed=name.encode().ljust(32, b"."))
    return KeyPair(bytes(key.public_key().export_key(format="raw")), key.seed)
