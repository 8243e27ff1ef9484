"""Key files: made once, readable by their owner alone, and never shown."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from zmq.utils import z85

from protocols.errors import KeyFileError
from protocols.transport import keys
from protocols.transport.keys import PUBLIC_HEADER, SECRET_HEADER, generate, generate_shared, read_public, read_secret

DIGITS = "0123456789abcdef" * 4


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return generate(tmp_path / "keys", "bank")


def test_the_secret_key_is_readable_by_its_owner_alone(files: tuple[Path, Path]) -> None:
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o600


def test_what_was_written_reads_back_as_a_pair(files: tuple[Path, Path]) -> None:
    secret, public = files
    pair = read_secret(secret)
    assert pair.public == read_public(public)
    assert secret.read_text() == f"{SECRET_HEADER} {pair.secret.hex()}\n"
    assert public.read_text() == f"{PUBLIC_HEADER} {pair.public.hex()}\n"


def test_the_public_key_is_the_one_that_zeromq_derives(files: tuple[Path, Path]) -> None:
    pair = read_secret(files[0])
    assert z85.decode(zmq.curve_public(z85.encode(pair.secret))) == pair.public


def test_two_parties_never_get_the_same_key(tmp_path: Path) -> None:
    pairs = [read_secret(generate(tmp_path, name)[0]) for name in ("a", "b")]
    assert pairs[0].secret != pairs[1].secret


def test_a_pair_does_not_show_its_secret(files: tuple[Path, Path]) -> None:
    pair = read_secret(files[0])
    shown = repr(pair) + str(pair)
    assert repr(pair.secret) not in shown
    assert pair.secret.hex() not in shown


@pytest.mark.parametrize("kept", ["bank.secret", "bank.public"])
def test_an_existing_key_is_never_replaced(files: tuple[Path, Path], kept: str) -> None:
    folder = files[0].parent
    before = (folder / kept).read_bytes()
    for path in folder.iterdir():
        if path.name != kept:
            path.unlink()
    with pytest.raises(KeyFileError, match=r"never replaced\. Nothing was written"):
        generate(folder, "bank")
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [(kept, before)]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o601])
def test_a_secret_key_that_others_may_read_is_refused(files: tuple[Path, Path], mode: int) -> None:
    files[0].chmod(mode)
    with pytest.raises(KeyFileError, match=f"has mode {mode:04o}; .* its owner alone"):
        read_secret(files[0])


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_secret_key_that_only_its_owner_may_read_is_accepted(files: tuple[Path, Path], mode: int) -> None:
    files[0].chmod(mode)
    assert len(read_secret(files[0]).secret) == 32


def test_one_kind_of_key_is_not_taken_for_the_other(files: tuple[Path, Path]) -> None:
    secret, public = files
    with pytest.raises(KeyFileError, match=f"must hold '{PUBLIC_HEADER}' and 64 hex digits"):
        read_public(secret)
    public.chmod(0o600)
    with pytest.raises(KeyFileError, match=f"must hold '{SECRET_HEADER}' and 64 hex digits"):
        read_secret(public)


@pytest.mark.parametrize(
    "content",
    [
        "",
        SECRET_HEADER,
        DIGITS,
        f"{SECRET_HEADER} {DIGITS[:-2]}",
        f"{SECRET_HEADER} {DIGITS}00",
        f"{SECRET_HEADER} {DIGITS} more",
        f"{SECRET_HEADER} {'z' * 64}",
    ],
)
def test_a_malformed_key_file_is_refused_without_showing_its_content(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.secret"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match="is not a key file") as refusal:
        read_secret(path)
    assert DIGITS[:16] not in str(refusal.value)


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=120))
def test_arbitrary_bytes_are_never_a_key(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "arbitrary.public"
    path.write_bytes(content)
    with pytest.raises(KeyFileError):
        read_public(path)


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".a", "a b", "a" * 65])
def test_a_name_that_could_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(KeyFileError, match=r"cannot name a key; letters, digits, '_', '\.' and '-' are allowed"):
        generate(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_hold_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KeyFileError, match=r"file cannot hold keys: File exists\. Nothing was written"):
        generate(tmp_path / "file", "bank")


def test_a_folder_that_may_not_be_looked_into_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one is that belongs to somebody else."""

    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "exists", refuse)
    for make in (generate, generate_shared):
        with pytest.raises(KeyFileError, match=r"cannot hold keys: Permission denied\. Nothing was written"):
            make(tmp_path, "bank")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("opener", ["private_opener", "_public_opener"])
def test_a_full_disk_leaves_no_beginning_of_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opener: str) -> None:
    """An empty file stayed, which counted as a key that is never replaced."""

    def full(path: str, flags: int) -> int:
        descriptor, device = os.open(path, flags, 0o600), os.open("/dev/full", os.O_WRONLY)
        os.dup2(device, descriptor)
        os.close(device)
        return descriptor

    with monkeypatch.context() as patch:
        patch.setattr(keys, opener, full)
        calls = [generate, *([generate_shared] if opener == "private_opener" else [])]
        for call in calls:
            with pytest.raises(KeyFileError, match=r"bank\.\w+ cannot be written: No space left .*Nothing was written"):
                call(tmp_path, "bank")
    assert not list(tmp_path.iterdir())
    assert read_secret(generate(tmp_path, "bank")[0])


def test_a_link_that_leads_nowhere_is_in_the_way_of_a_key(tmp_path: Path) -> None:
    (tmp_path / "bank.public").symlink_to(tmp_path / "none")
    with pytest.raises(KeyFileError, match=r"bank\.public cannot be written: File exists\. Nothing was written"):
        generate(tmp_path, "bank")
    assert [path.name for path in tmp_path.iterdir()] == ["bank.public"]


def test_an_absent_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"nowhere\.public cannot be read: No such file"):
        read_public(tmp_path / "nowhere.public")


@pytest.mark.parametrize("opener", ["private_opener", "_public_opener"])
def test_a_signal_leaves_no_half_of_a_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opener: str) -> None:
    """A secret key without its public one stayed, which is never replaced."""

    def stop(path: str, flags: int) -> int:
        os.close(os.open(path, flags, 0o600))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(keys, opener, stop)
        with pytest.raises(KeyboardInterrupt):
            generate(tmp_path, "bank")
    assert not list(tmp_path.iterdir())
    assert read_secret(generate(tmp_path, "bank")[0])
