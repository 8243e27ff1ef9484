"""Console: results on standard output, errors as one sentence on the other, and a defect keeps its traceback."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from parties.commands.console import Format, print_all_texts, print_result, terminal_of_command
from parties.errors import TableError


def test_a_result_is_lines_for_people_and_json_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(Format.TEXT, run_folder="runs/spring", n=3)
    assert capsys.readouterr().out == "run folder: runs/spring\nn: 3\n"
    print_result(Format.JSON, run_folder="runs/spring", n=3)
    assert json.loads(capsys.readouterr().out) == {"run_folder": "runs/spring", "n": 3}


@pytest.mark.parametrize(
    ("encoding", "errors", "printed"),
    [
        ("utf-8", "strict", b"caf\\udce9 \xe2\x82\xac"),
        ("utf-8", "surrogateescape", b"caf\xe9 \xe2\x82\xac"),
        ("latin-1", "strict", b"caf\\udce9 \\u20ac"),
    ],
)
def test_a_result_whose_characters_the_terminal_lacks_is_printed(
    monkeypatch: pytest.MonkeyPatch, encoding: str, errors: str, printed: bytes
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding=encoding, errors=errors, write_through=True))
    print_all_texts()
    print_result(Format.TEXT, report="caf\udce9 \u20ac")
    assert written.getvalue() == b"report: " + printed + b"\n"


@pytest.mark.parametrize(
    ("closed", "command", "code", "words"),
    [
        ("<&-", ("init", "data.csv"), 2, "Invalid value for --role: is missing"),
        (">&-", ("keygen", "bank"), 0, ""),
        ("<&- >&- 2>&-", ("keygen", "bank"), 0, ""),
    ],
)
def test_a_command_ends_as_ever_where_standard_streams_are_closed(
    tmp_path: Path, closed: str, command: tuple[str, ...], code: int, words: str
) -> None:
    """It ended with a traceback; a training, too, when all was done."""
    call = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "parties.cli", *command]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "keys" / "bank.secret").exists() is (code == 0)


def test_an_expected_error_is_one_sentence_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as stopped, terminal_of_command():
        raise TableError("data[0].csv is empty")
    assert stopped.value.exit_code == 1
    found = capsys.readouterr()
    assert found.out == ""
    assert "error: data[0].csv is empty" in found.err


def test_a_defect_is_no_sentence() -> None:
    with pytest.raises(ZeroDivisionError), terminal_of_command():
        raise ZeroDivisionError


def test_a_warning_is_printed_where_nobody_watches_and_a_step_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal_of_command() as terminal:
        terminal.progress("encoding", 1, 2)
        terminal.progress("encoding", 2, 2)
        terminal.say("a step")
        terminal.warn("a warning [red]x[/red]")
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.strip() == "a warning [red]x[/red]"
