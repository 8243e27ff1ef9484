"""Time steps of desensitized answers: those about several records leave after a whole number of steps.

Rehearsals leave differences. Of many records, those that were drawn before fill no new pages of the ledger's file, and
those that were drawn for many requests are read from as many sets. So an answer about several records, and an error in
its place, leaves at a whole multiple of a step, whose length depends on what the active party knows.

Over CURVE, of two columns on two busy cores, 200 records that were released as one set took 64 ms, 10,000 took 91 ms;
new ones differed by less than 10 ms, those of 70 earlier requests took 72 and 120 ms longer. Of 60 columns, ten records
took 18 ms a column. A single record shows nothing and does not wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

# Parts of a step: of every request for several records, of each column that is tested and of each record.
REQUEST_S, COLUMN_S, RECORD_S = 0.2, 0.025, 40e-6

Steps = Callable[[int, int], AbstractContextManager[None]]
"""Given numbers of records and columns, a block that ends after a whole number of steps."""


def step_s(n_records: int, n_columns: int) -> float:
    """The length of a step, in seconds; 0 for a single record.

    Privacy: it depends on nothing but how many records are asked for, known or not, and how many columns the model
    tests: the active party knows both.
    """
    return REQUEST_S + COLUMN_S * n_columns + RECORD_S * n_records if n_records > 1 else 0.0


@contextmanager
def whole_steps(
    n_records: int,
    n_columns: int,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """End a block, also by an error, a whole number of steps after it began.

    Parameters
    ----------
    n_records, n_columns : int
        Records that are asked for, and columns that are tested.
    clock : callable
        Seconds, of which differences count.
    sleep : callable
        Waits for so many seconds.
    """
    began = clock()
    try:
        yield
    finally:
        if step := step_s(n_records, n_columns):
            sleep((began - clock()) % step)


def no_steps(n_records: int, n_columns: int) -> AbstractContextManager[None]:
    """A block that ends at once, for answers without a ledger."""
    return nullcontext()
