"""The command line: instant help, results for people or for scripts, and one sentence and exit code 1 for a fault."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import pty
import re
import resource
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parties import cli
from parties.cli import app
from parties.commands import console
from parties.commands.demo_folder import MARK, MARKER
from parties.jobs import train_vertical
from parties.storage.folder_lock import locked
from protocols.errors import PeerLost
from protocols.messages.message import PROTOCOL_VERSION
from protocols.transport.keys import read_public, read_secret

COMMANDS = {"party-a", "party-b", "predict", "keygen", "ledger", "report", "demo"}


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("role", ["active", "passive", "coordinator", "worker", "owner"])
@pytest.mark.parametrize(
    ("words", "roles"),
    [
        (["party-a"], "active"),
        (["party-b"], "passive"),
        (["party-b", "--serve"], "passive"),
        (["coordinator"], "coordinator"),
        (["worker"], "worker"),
        (["chain"], "owner"),
        (["scout"], "active or passive"),
        (["serve"], "active"),
        (["explain"], "active or passive"),
        (["tune"], "active"),
        (["scorecard"], "active"),
        (["ledger"], "passive, worker or owner"),
        (["ledger", "--migrate"], "passive"),
    ],
    ids=str,
)
def test_a_run_file_of_another_role_is_refused_in_one_sentence(
    tmp_path: Path, words: list[str], roles: str, role: str
) -> None:
    (path := tmp_path / "run.yaml").write_text(f"role: {role}\n")
    code, out, error = run(*words, str(path))
    assert (code, out) == (1, "")
    sentence = f"error: {path} is of role {role}; this command takes a run file of role {roles}. Nothing was done\n"
    assert (error.replace("\n", " ").strip() == sentence.strip()) == (role not in roles)


@pytest.mark.parametrize(
    ("words", "loaded"),
    [
        (["--help"], []),
        (["party-a", "--help"], []),
        (["demo", "--help"], []),
        (["ledger", "--help"], []),
        (["report", "--help"], []),
        (["--version"], []),
    ],
    ids=str,
)
def test_help_and_version_load_nothing_heavy(words: list[str], loaded: list[str]) -> None:
    code = (
        "import sys; from parties.cli import app\n"
        f"try: app({words!r})\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "heavy = {'jinja2', 'matplotlib', 'numba', 'numpy', 'pandas', 'scipy', 'sklearn', 'zmq', 'cryptography'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, f"{loaded}\n")


def test_help_takes_less_than_half_a_second() -> None:
    """Of processor time, and of the quickest of three: other processes of a machine do not count."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "parties.cli", "--help"], capture_output=True, timeout=30, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.5


@pytest.mark.parametrize("module", ["parties.jobs.train_vertical", "parties.jobs.predict_vertical"])
def test_a_party_of_a_vertical_run_loads_nothing_of_other_runs(module: str) -> None:
    code = (
        f"import sys, {module}\n"
        "spared = ('jinja2', 'matplotlib', 'xgboost', 'dask', 'sklearn', 'scipy.optimize', 'scipy.special', "
        "'opboost.horizontal', 'parties.reports')\n"
        "print([name for name in spared if name in sys.modules], 'numba' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[] True\n"


def test_help_lists_every_command() -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert all(f" {command} " in out for command in COMMANDS)


def test_the_version_is_the_packages_and_the_protocols() -> None:
    assert run("--version")[:2] == (0, f"opboost {version('opboost')} (protocol {PROTOCOL_VERSION})\n")


def test_no_command_shows_the_help_and_is_no_success() -> None:
    code, out, err = run()
    assert code == 2
    assert "Usage:" in out + err


@pytest.mark.parametrize(
    "words", [["party-c"], ["party-a"], ["party-a", "run.yaml", "--fast"], ["demo", "--epsilon", "x"]]
)
def test_a_wrong_call_is_refused_with_the_usage(words: list[str]) -> None:
    code, _, err = run(*words)
    assert code == 2
    assert "Usage:" in err


def test_keygen_makes_a_pair_and_says_where(tmp_path: Path) -> None:
    code, out, _ = run("keygen", "bank", "--folder", str(tmp_path / "keys"), "--format", "json")
    found = json.loads(out)
    assert code == 0
    assert found == {name: str(tmp_path / "keys" / f"bank.{name}") for name in ("secret", "public")}
    assert read_secret(Path(found["secret"])).public == read_public(Path(found["public"]))
    assert read_secret(Path(found["secret"])).secret.hex() not in out


def test_keygen_speaks_to_people_unless_told_otherwise(tmp_path: Path) -> None:
    code, out, _ = run("keygen", "bank", "--folder", str(tmp_path))
    assert code == 0
    assert out.splitlines() == [f"{name}: {tmp_path / f'bank.{name}'}" for name in ("secret", "public")]


def test_keygen_never_replaces_a_key(tmp_path: Path) -> None:
    run("keygen", "bank", "--folder", str(tmp_path))
    before = (tmp_path / "bank.secret").read_text()
    code, out, err = run("keygen", "bank", "--folder", str(tmp_path), "--format", "json")
    assert (code, out) == (1, "")
    assert err == f"error: {tmp_path / 'bank.secret'} exists; a key is never replaced. Nothing was written\n"
    assert (tmp_path / "bank.secret").read_text() == before


def test_another_data_file_is_for_serving_alone(tmp_path: Path) -> None:
    code, out, err = run("party-b", str(tmp_path / "run.yaml"), "--data", str(tmp_path / "new.csv"))
    assert (code, out) == (2, "")
    assert "goes with --serve" in err


@pytest.mark.parametrize(
    "options", [("--ids", "ids.txt"), ("--out", "x.csv"), ("--mode", "routed"), ("--reasons", "2"), ("--overwrite",)]
)
def test_options_of_the_active_party_are_refused_by_a_passive_one(tmp_path: Path, options: tuple[str, ...]) -> None:
    """They were passed over: a list of ids would not have kept others from being answered."""
    (tmp_path / "run.yaml").write_text("role: passive\n")
    code, out, err = run("predict", str(tmp_path / "run.yaml"), *options)
    assert (code, out) == (2, "")
    assert "active party's run file" in " ".join(err.split())


@pytest.mark.parametrize("command", ["party-a", "party-b", "predict"])
def test_a_run_file_that_is_not_there_is_one_sentence_and_exit_code_1(tmp_path: Path, command: str) -> None:
    path = tmp_path / "none.yaml"
    assert run(command, str(path)) == (1, "", f"error: {path} cannot be read: No such file or directory\n")


def test_an_expected_error_is_one_sentence_even_with_brackets_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object, **__: object) -> None:
        raise PeerLost("shop [red]is gone[/red]")

    monkeypatch.setattr(train_vertical, "train_active", lost)
    assert run("party-a", str(tmp_path)) == (3, "", "error: shop [red]is gone[/red]\n")


def test_a_defect_is_not_dressed_up_as_an_expected_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(train_vertical, "train_active", broken)
    result = CliRunner().invoke(app, ["party-a", str(tmp_path)])
    assert isinstance(result.exception, ZeroDivisionError)
    assert result.exit_code == 1


@pytest.mark.parametrize(("command", "job"), [("party-a", "train_active"), ("party-b", "train_passive")])
def test_plain_text_is_spoken_only_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, job: str
) -> None:
    asked: list[bool] = []

    class Folder:
        path = tmp_path

    def note(path: Path, *, insecure: bool, terminal: object, restarts: object) -> Folder:
        asked.append(insecure)
        return Folder()

    monkeypatch.setattr(train_vertical, job, note)
    for words in ([], ["--insecure"]):
        code, out, _ = run(command, "run.yaml", "--format", "json", *words)
        then = " ".join(["opboost predict run.yaml", *words])
        assert (code, json.loads(out)) == (0, {"run_folder": str(tmp_path), "next": then})
    assert asked == [False, True]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--epsilon", "0"], "epsilon"),
        (["--mechanism", "map"], "mechanism"),
        (["--horizontal", "--epsilon", "0"], "epsilon"),
        (["--horizontal", "--scheme", "inprivate", "--epsilon", "0"], "epsilon"),
    ],
)
def test_a_demo_with_impossible_settings_writes_nothing(tmp_path: Path, options: list[str], words: str) -> None:
    code, _, err = run("demo", "--out", str(tmp_path / "demo"), *options)
    assert code == 1
    assert err.startswith(f"error: {words}: must be ")
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize("readme", [None, "what the files beside this one are\n"])
@pytest.mark.parametrize("options", [[], ["--horizontal"]])
def test_a_demo_never_clears_a_folder_that_holds_anything_else(
    tmp_path: Path, readme: str | None, options: list[str]
) -> None:
    kept = {"bank/thesis.txt": "all of it"} | ({} if readme is None else {"README.txt": readme})
    (tmp_path / "bank").mkdir()
    for name, text in kept.items():
        (tmp_path / name).write_text(text)
    code, _, err = run("demo", "--out", str(tmp_path), *options)
    assert (code, err) == (1, f"error: {tmp_path} holds other things than a demo; give another folder with --out\n")
    found = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in tmp_path.rglob("*.txt")}
    assert found == kept


@pytest.mark.parametrize(("options", "party"), [([], "retailer"), (["--horizontal"], "west")])
def test_a_demo_that_others_work_on_is_left_alone(tmp_path: Path, options: list[str], party: str) -> None:
    (tmp_path / MARKER).write_text(MARK)
    folder = tmp_path / party / "runs" / "demo"
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text("{}")
    with locked(folder):
        code, _, err = run("demo", "--out", str(tmp_path), *options)
    assert (code, err) == (6, f"error: another process works on the run in {folder} now. Nothing was removed\n")
    assert (folder / "meta.json").exists()


@pytest.mark.parametrize("script", ["party_a", "party_b", "predict", "report"])
def test_a_launch_script_is_the_command_of_its_name(tmp_path: Path, script: str) -> None:
    path = Path(__file__).parents[2] / "scripts" / f"{script}.py"
    call = [sys.executable, str(path), "--help"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=30, cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert f" {script.replace('_', '-')} " in done.stdout


def in_terminal(*words: str, **environment: str) -> str:
    """What a command shows to a person who watches it in a terminal."""
    near, far = pty.openpty()
    variables = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment}
    for name in {"NO_COLOR", "FORCE_COLOR"} - set(environment):
        variables.pop(name, None)
    call = [sys.executable, "-m", "parties.cli", *words]
    with subprocess.Popen(call, stdin=far, stdout=far, stderr=far, env=variables) as process:
        os.close(far)
        shown = b""
        with contextlib.suppress(OSError):  # the end of a terminal's output, on Linux
            while piece := os.read(near, 4096):
                shown += piece
        os.close(near)
        process.wait(60)
    return shown.decode()


COLOUR = re.compile(r"\x1b\[(?:\d+;)*(3\d|9[0-7])(?:;\d+)*m")


def test_a_terminal_gets_colours_unless_they_are_not_wanted(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.yaml")
    shown, plain = in_terminal("report", missing), in_terminal("report", missing, NO_COLOR="1")
    assert "cannot be read" in shown
    assert "cannot be read" in plain
    assert COLOUR.search(shown)
    assert not COLOUR.search(plain)


def test_a_terminal_gets_a_result_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    console.print_result(console.Format.TEXT, run_folder="[here]")
    assert "│ run folder │ [here] │" in screen.getvalue()


def test_where_nobody_watches_steps_are_left_to_the_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Folder:
        path = tmp_path

    def chatty(path: Path, *, insecure: bool, terminal: train_vertical.Terminal, restarts: object) -> Folder:
        terminal.say("a step")
        terminal.progress("growing trees", 1, 2)
        terminal.warn("a warning")
        return Folder()

    monkeypatch.setattr(train_vertical, "train_active", chatty)
    assert run("party-a", "run.yaml") == (0, f"run folder: {tmp_path}\nnext: opboost predict run.yaml\n", "a warning\n")


@pytest.mark.parametrize("made", [ImportError("81726354"), SystemExit(5)], ids=repr)
def test_a_process_that_was_told_to_stop_says_so_whatever_becomes_of_the_signal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], made: BaseException
) -> None:
    """Code in C that is interrupted may raise another error, and a job may end with the code of that one."""

    def interrupted(*_: object, **__: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except BaseException:
            raise made from None

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr(cli, "command", lambda: interrupted)
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main()
    finally:
        cli.Stopped.received = None
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert ended.value.code == 143
    assert capsys.readouterr().err == "error: this party was told to stop\n"


def test_a_defect_has_a_sentence_above_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("salary 81726354")

    monkeypatch.setattr(cli, "command", lambda: broken)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    with pytest.raises(KeyError):
        cli.main()
    said = capsys.readouterr().err
    assert said.startswith("error: stopped with KeyError, which is a defect of this program.")
    assert "81726354" not in said


def test_a_full_disk_behind_standard_output_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was done ended in a traceback, as a defect."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cli, "command", lambda: full)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 6
    assert capsys.readouterr().err == (
        "error: standard output, or a temporary file, cannot be written: No space left on device\n"
    )
