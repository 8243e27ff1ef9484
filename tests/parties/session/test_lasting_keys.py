"""Lasting keys of workers: the same at coordinator and workers, where these know each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from parties.config.record_runs import read_record_run
from parties.session.lasting_keys import lasting_keys
from protocols.errors import KeyFileError
from protocols.transport.keys import read_public, read_secret
from tests.support import chained_clinics
from tests.support.clinics import NAMES, Clinics


def found(path: Path) -> dict[str, bytes]:
    return lasting_keys(read_record_run(path))[1]


def test_coordinator_and_workers_have_every_workers_key(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    keys = {name: read_public(tmp_path / name / "keys" / f"{name}.public") for name in NAMES}
    for name in ("hub", *NAMES):
        assert found(clinics.write(name)) == keys
    identities = [lasting_keys(read_record_run(clinics.write(name)))[0] for name in ("hub", *NAMES)]
    assert identities == [None, *(read_secret(tmp_path / name / "keys" / f"{name}.secret") for name in NAMES)]
    clinics.outdate("w2", "w0")
    assert found(clinics.write("w2")) != keys


def test_workers_that_do_not_know_each_other_have_none(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, known_workers=False)
    del clinics.runs["w0"]["peers"]
    assert [found(clinics.write(name)) for name in ("hub", "w0")] == [{}, {}]


def test_owners_in_a_chain_are_connected_under_their_keys_and_compare_none(tmp_path: Path) -> None:
    assert found(chained_clinics.Clinics(tmp_path).write("w0")) == {}


def test_a_worker_without_a_key_file_is_named(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    del clinics.runs["hub"]["workers"][1]["public_key"]
    with pytest.raises(KeyFileError, match=r"no public_key for w1\. Nothing was sent"):
        found(clinics.write("hub"))


def test_a_worker_without_a_secret_key_is_told_that_plain_text_is_no_way_out(tmp_path: Path) -> None:
    """It was told to type --insecure, which it had."""
    clinics = Clinics(tmp_path, known_workers=True)
    del clinics.runs["w0"]["secret_key"]
    with pytest.raises(KeyFileError, match=r"no secret_key, and with `known_workers: true` .* in plain text, too"):
        found(clinics.write("w0"))
    end = clinics.in_thread("w0", insecure=True).get(timeout=60)
    assert "all agree on `known_workers: false` in `training`. Nothing was sent" in str(end)
    assert "connects to hub" not in (clinics.folder("w0") / "log.txt").read_text()
