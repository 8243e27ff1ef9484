"""Key files: a party's secret key, and the public keys of the peers it talks to.

A key file is one line of text, ``opboost-secret-key <64 hex digits>`` or ``opboost-public-key <64 hex digits>``:
a Curve25519 key, as ZeroMQ's CURVE uses it. A secret that several parties share, for hashing ids, is such a line too:
``opboost-shared-secret <64 hex digits>``.
"""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from protocols.errors import KeyFileError
from protocols.private_files import private_folder, private_opener

SECRET_HEADER = "opboost-secret-key"
PUBLIC_HEADER = "opboost-public-key"
SHARED_HEADER = "opboost-shared-secret"

# What may name a party, a run or a key: safe in file names everywhere.
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A party's own keys, 32 bytes each."""

    public: bytes
    secret: bytes = field(repr=False)


def generate(folder: Path, name: str) -> tuple[Path, Path]:
    """Write ``name.secret`` (readable by its owner alone) and ``name.public``; existing files are never replaced."""
    key = X25519PrivateKey.generate()
    secret_path, public_path = _new_files(folder, name, "secret", "public")
    _write(secret_path, f"{SECRET_HEADER} {key.private_bytes_raw().hex()}\n", private_opener)
    try:
        _write(public_path, f"{PUBLIC_HEADER} {key.public_key().public_bytes_raw().hex()}\n", _public_opener)
    except BaseException:
        secret_path.unlink()
        raise
    return secret_path, public_path


def generate_shared(folder: Path, name: str) -> Path:
    """Write ``name.shared``, 32 random bytes that all parties get over a safe way and keep to themselves."""
    (path,) = _new_files(folder, name, "shared")
    _write(path, f"{SHARED_HEADER} {secrets.token_hex(32)}\n", private_opener)
    return path


def read_secret(path: Path) -> KeyPair:
    """Read a secret key and derive its public key.

    Raises
    ------
    KeyFileError
        If the file is absent, malformed or readable by anyone but its owner.
    """
    secret = _read(path, SECRET_HEADER)
    check_private(path)
    return KeyPair(X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw(), secret)


def read_shared(path: Path) -> bytes:
    """Read a shared secret, 32 bytes; like a secret key, it must be readable by its owner alone."""
    secret = _read(path, SHARED_HEADER)
    check_private(path)
    return secret


def read_public(path: Path) -> bytes:
    """Read a peer's public key, 32 bytes."""
    return _read(path, PUBLIC_HEADER)


def check_loopback(address: str, keys: KeyPair | None) -> None:
    """Refuse a connection without keys that could leave this machine.

    Raises
    ------
    KeyFileError
    """
    if keys is None and not is_loopback(address.removeprefix("tcp://").rpartition(":")[0].strip("[]")):
        raise KeyFileError(f"{address} is not on loopback; a connection without keys is refused there")


def is_loopback(host: str) -> bool:
    """Whether a host, by name or number, is this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_private(path: Path) -> None:
    """Refuse a file of secrets that others than its owner may read.

    Raises
    ------
    KeyFileError
    """
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise KeyFileError(f"{path} has mode {mode:04o}; a secret key must be readable by its owner alone (0600)")


def _read(path: Path, header: str) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise KeyFileError(f"{path} is a folder, a named pipe, a socket or a device, where a key file is needed")
        words = path.read_text().split()
        key = bytes.fromhex(words[1]) if len(words) == 2 and words[0] == header else b""
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        key = b""
    if len(key) != 32:
        raise KeyFileError(f"{path} is not a key file: it must hold {header!r} and 64 hex digits")
    return key


def _new_files(folder: Path, name: str, *endings: str) -> list[Path]:
    """Paths for new key files of this name, none of which exists yet."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise KeyFileError(f"{name!r} cannot name a key; letters, digits, '_', '.' and '-' are allowed")
    paths = [folder / f"{name}.{ending}" for ending in endings]
    try:
        private_folder(folder)
        taken = next(filter(Path.exists, paths), None)
    except OSError as error:
        raise KeyFileError(f"{folder} cannot hold keys: {error.strerror}. Nothing was written") from None
    if taken is not None:
        raise KeyFileError(f"{taken} exists; a key is never replaced. Nothing was written")
    return paths


def _write(path: Path, text: str, opener: Callable[[str, int], int]) -> None:
    """Write a new file whole; without room on the disk, or at a signal, nothing stays that would count as a key."""
    try:
        with open(path, "x", opener=opener) as file:
            file.write(text)
    except BaseException as error:
        if not isinstance(error, FileExistsError):
            with suppress(OSError):
                path.unlink()
        if not isinstance(error, OSError):
            raise
        raise KeyFileError(f"{path} cannot be written: {error.strerror}. Nothing was written") from None


def _public_opener(path: str, flags: int) -> int:
    """Others may read it, and never change it."""
    return os.open(path, flags, 0o644)
