"""`opboost compile-loops`: after it, no run has anything left to compile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# The command, then a run of each of several kinds; prints what was compiled for these alone.
RUNS = """
import gc, sys
from pathlib import Path
import numpy as np
from numba.core.dispatcher import Dispatcher
from opboost import OpBoostRegressor
from parties.commands.compile_loops import compile_loops
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.jobs.warm_up import compiled_before
from tests.support.outcomes import outcomes_of
from tests.support.sites import Sites

def compiled():
    loops = (one for one in gc.get_objects() if isinstance(one, Dispatcher) and one.__module__.startswith("opboost."))
    return {f"{one.__module__}.{one.__qualname__}{types}" for one in loops for types in one.stats.cache_misses}

compile_loops()
assert compiled_before()
before = compiled()
for number, model in enumerate(({"max_depth": 8}, {"validation_fraction": 0.2})):
    folder = Path(sys.argv[1], str(number))
    folder.mkdir()
    sites = Sites(folder)
    sites.bank.run["model"] |= model
    sites.bank.run["correct_noise"] = number == 0
    bank, shop, terminal = sites.bank.write(), sites.shop.write(), Terminal()
    found = outcomes_of({
        "bank": lambda: train_active(bank, insecure=False, terminal=terminal),
        "shop": lambda: train_passive(shop, insecure=False, terminal=terminal),
    })
    errors = [one for one in found.values() if isinstance(one, BaseException)]
    assert not errors, errors
draw = np.random.default_rng(1)
X = draw.random((2000, 3))
X[0] = np.nan
model = OpBoostRegressor(n_estimators=3, bounds={0: (0, 1)}, epsilon=0.1, missing="category")
model.fit(X, draw.random(2000)).contributions(X[:9])
OpBoostRegressor(n_estimators=3, objective="reg:tweedie").fit(X, draw.random(2000))
print(*sorted(compiled() - before), sep="\\n")
"""


def test_runs_after_it_have_nothing_left_to_compile(tmp_path: Path) -> None:
    """In a process of its own, in which no other test has trained."""
    call = [sys.executable, "-c", RUNS, str(tmp_path)]
    root = Path(__file__).parents[3]
    ended = subprocess.run(call, cwd=root, capture_output=True, text=True, timeout=600, check=False)
    assert (ended.returncode, ended.stdout) == (0, "\n"), ended.stderr
