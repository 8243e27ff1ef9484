"""What a forked child finds, as a text, and how processes that were started end."""

from __future__ import annotations

import os
import subprocess
import warnings
from collections.abc import Callable


def in_a_fork(call: Callable[[], object]) -> str:
    """What `call` returns or raises in a child; the child's end is bounded by an alarm of a minute."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        # Python from 3.12 on warns of forks beside threads, which is what happens to users.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        import signal

        signal.alarm(60)
        try:
            found = repr(call())
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
        os.write(write, found.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    return found


def finish(*processes: subprocess.Popen[str], seconds: float = 150) -> list[tuple[int, str]]:
    """Exit code and standard error of each process, all of which must end in time."""
    try:
        ends = [process.communicate(timeout=seconds) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    return [(process.returncode, end[1]) for process, end in zip(processes, ends, strict=True)]
