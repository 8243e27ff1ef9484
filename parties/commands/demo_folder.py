"""Folder of a demo, the bundled sample that it works on, and its parties' commands at the same time."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from parties.errors import ConfigError, PartyError, RunFolderError
from parties.storage.atomic_files import make_folder, write_text
from parties.storage.folder_lock import is_locked
from parties.storage.paths import writing

DATASET = "bank and retailer (synthetic)"
BANK, RETAILER = "bank", "retailer"
MARKER, MARK = "README.txt", "This folder belongs to `opboost demo`, which empties it when it is run again.\n"
TEST_SHARE = 0.2
SEED = 7

# A step that takes longer than this on the sample has gone wrong.
STEP_LIMIT_S = 300


def sample_folder() -> Path:
    """Folder of the bundled sample: beside the packages in a checkout, inside them once installed."""
    package = Path(__file__).parents[1]
    for folder in (package / "sample", package.parent / "data"):
        if (folder / f"{BANK}.csv.gz").exists():
            return folder
    raise ConfigError("the bundled sample was not installed with the package")


def clear(out: Path, names: Sequence[str]) -> None:
    """Create the demo's folder, or empty it; a folder that holds anything else is refused."""
    with writing(marker := out / MARKER):
        # Many folders have a file of this name.
        is_demo = marker.is_file() and marker.read_bytes() == MARK.encode()
        if not is_demo and out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"{out} holds other things than a demo; give another folder with --out")
        runs = (out / name / "runs" / "demo" for name in names)
        if busy := [str(run) for run in runs if run.is_dir() and is_locked(run)]:
            raise RunFolderError(f"another process works on the run in {', '.join(busy)} now. Nothing was removed")
    make_folder(out)
    write_text(marker, MARK)
    for name in names:
        shutil.rmtree(out / name, ignore_errors=True)


def run_together(commands: Sequence[Sequence[str]], folders: Mapping[str, Path]) -> None:
    """Run one command of each party at the same time; all must succeed."""
    processes = []
    for command, party, *options in commands:
        call = [sys.executable, "-m", "parties.cli", command, str(folders[party] / "run.yaml"), *options]
        processes.append(subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    sentences = []
    try:
        for process in processes:
            sentences.append(process.communicate(timeout=STEP_LIMIT_S)[1])
    except subprocess.TimeoutExpired:
        raise PartyError(f"the demo's parties did not finish within {STEP_LIMIT_S} s") from None
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    failed = [
        f"{party}: {_reasons(text)}"
        for (_, party, *_), process, text in zip(commands, processes, sentences, strict=True)
        if process.returncode
    ]
    if failed:
        raise PartyError(f"a party of the demo failed. {' '.join(failed)}")


def _reasons(stderr: str) -> str:
    """Error sentences of a failed party, or the last lines that it printed."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    return " ".join([line for line in lines if line.startswith("error: ")] or lines[-5:]) or "it said nothing"
