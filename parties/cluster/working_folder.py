"""Working folder: partitions, blocks and answers of a run, which are removed at its end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from parties.errors import RunFolderError
from parties.runs.run_folder import RunFolder
from protocols.private_files import private_folder

_WORK = "work"


@contextmanager
def working_folder(home: Path) -> Iterator[Path]:
    """A folder at `home` for the time of the block; what a process that was killed left there before is removed."""
    place = home / f"{_WORK}.{uuid4().hex}"
    made = [folder for folder in (home, *home.parents) if not folder.exists()]
    try:
        private_folder(home)
        for old in home.glob(f"{_WORK}.*"):
            # One that is in use belongs to another run.
            with suppress(RunFolderError), RunFolder(old).locked():
                shutil.rmtree(old, ignore_errors=True)
        private_folder(place)
    except OSError as error:
        raise RunFolderError(f"{home} cannot be written: {error.strerror}. Nothing was sent") from None
    try:
        with RunFolder(place).locked():
            yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        # Nothing else was put there meanwhile: then it is as before.
        with suppress(OSError):
            for folder in made:
                folder.rmdir()
