"""Run a module with compiled code that checks every index: ``python -m tests.support.checked MODULE [ARGUMENT ...]``.

Compiled loops take one thread: an index error on another one would be lost. The cache of compiled code must be one of
its own (``NUMBA_CACHE_DIR``), because code with and without these checks has one name there.
"""

from __future__ import annotations

import os
import runpy
import sys

assert os.environ.get("NUMBA_CACHE_DIR"), "NUMBA_CACHE_DIR must name a folder for code with index checks"
os.environ["NUMBA_BOUNDSCHECK"] = "1"

import numba  # noqa: E402  it reads the environment

compiled = numba.njit
numba.njit = lambda *args, **options: compiled(*args, **{**options, "parallel": False})

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
