"""Progress: the callback that ignores it takes what every caller gives."""

from __future__ import annotations

import inspect
from typing import get_args

from parties.progress import Progress, no_progress


def test_ignoring_progress_is_a_progress_callback_without_an_effect() -> None:
    taken = [one.annotation for one in inspect.signature(no_progress, eval_str=True).parameters.values()]
    assert taken == get_args(Progress)[0] == [str, int, int]
    no_progress("encoding", 1, 2)
