"""What a child that was forked from this process finds, as a text."""

from __future__ import annotations

import os
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
