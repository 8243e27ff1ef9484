"""The launchers do what the command does: same words, same exit codes, and a goodbye to the peer."""

from __future__ import annotations

import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from parties import cli
from parties.commands.exit_codes import ExitCode
from tests.support.processes import Command, finish
from tests.support.sites import Site, Sites

SCRIPTS = Path(__file__).parents[2] / "scripts"
COMMANDS = {"party_a": "party-a", "party_b": "party-b", "predict": "predict", "report": "report"}


@pytest.mark.parametrize("script", COMMANDS)
def test_a_launcher_hands_its_arguments_to_the_command(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(cli, "main", called.append)
    monkeypatch.setattr(sys, "argv", [f"{script}.py", "run.yaml", "--format", "json"])
    runpy.run_path(str(SCRIPTS / f"{script}.py"), run_name="__main__")
    assert called == [[COMMANDS[script], "run.yaml", "--format", "json"]]


@pytest.mark.parametrize("script", ["predict", "report"])
def test_a_fault_is_the_commands_sentence_and_exit_code(script: str, tmp_path: Path) -> None:
    command = Command(COMMANDS[script], str(tmp_path / "run.yaml"))
    call = [sys.executable, str(SCRIPTS / f"{script}.py"), str(tmp_path / "run.yaml")]
    launched = subprocess.run(call, capture_output=True, text=True, timeout=60, check=False)
    ((_, _, said),) = finish(command)
    assert (launched.returncode, launched.stdout, launched.stderr) == (1, "", said)
    assert said.startswith("error: ")


def test_a_launched_party_that_is_told_to_stop_says_so_and_tells_the_other_one(tmp_path: Path) -> None:
    sites = Sites(tmp_path)
    sites.bank.run["model"] = {"n_estimators": 1_000_000, "max_depth": 6}
    bank, shop = launch("party_a", sites.bank), launch("party_b", sites.shop)
    try:
        log = sites.bank.run_folder / "log.jsonl"
        deadline = time.monotonic() + 60
        while not log.exists() or log.read_text().count('"rank chunk"') < 2:
            assert time.monotonic() < deadline
            assert bank.poll() is None, bank.communicate()
            time.sleep(0.02)
        bank.send_signal(signal.SIGTERM)
        said = [process.communicate(timeout=30)[1].splitlines()[-1] for process in (bank, shop)]
    finally:
        for process in (bank, shop):
            process.kill()
            process.communicate()
    assert [bank.returncode, shop.returncode] == [128 + signal.SIGTERM, ExitCode.PEER_ABSENT]
    assert said[0] == "error: this party was told to stop"
    # The last ranks may not have been taken in yet.
    assert re.search("bank ended the run while (collecting ranks|growing trees): it was told to stop", said[1])
    assert '"message": "this party was told to stop"' in log.read_text()


def launch(script: str, site: Site) -> subprocess.Popen[str]:
    call = [sys.executable, str(SCRIPTS / f"{script}.py"), str(site.write())]
    return subprocess.Popen(call, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
