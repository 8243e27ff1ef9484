"""Date formats: the patterns by which the texts of a column are dates or times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from parties.config.reader_section import TODO
from parties.tables.cells import times_by

_DAYS = ("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y")
_TIMES = tuple(f"{day} {time}" for day in _DAYS for time in ("%H:%M", "%H:%M:%S"))


def times_of(present: pd.Series) -> dict[str, Any]:
    """Description of a column of dates or times; empty for any other."""
    unique = pd.Series(present.unique()).str.strip()
    for kind, patterns in (("date", _DAYS), ("datetime", ("ISO8601",)), ("datetime", _TIMES)):
        if formats := _formats_of(unique, patterns):
            return {"kind": kind} | ({} if formats in ("ISO8601", _DAYS[0]) else {"format": formats})
    return {}


def are_times(texts: pd.Series) -> pd.Series:
    """Whether each text is a date or a time by any of the patterns."""
    return pd.DataFrame({pattern: fits(texts.str.strip(), pattern) for pattern in (*_DAYS, *_TIMES)}).any(axis=1)


def fits(texts: pd.Series, pattern: str) -> pd.Series:
    """Whether each text is a time by a pattern."""
    return times_by(texts, pattern).notna()


def _formats_of(texts: pd.Series, patterns: Sequence[str]) -> str | list[str] | None:
    """The patterns that together read all texts, no two of them with the same mark after the day; None without any.

    Where two would do equally well, which one is meant is for the owner to say.
    """
    chosen: list[str] = []
    while len(texts):
        found = {pattern: fits(texts, pattern) for pattern in patterns}
        most = max((int(each.sum()) for each in found.values()), default=0)
        best = [pattern for pattern, each in found.items() if each.sum() == most]
        if not most:
            return None
        if len({pattern[2] for pattern in best}) < len(best):
            return f"{TODO}: {' or '.join(best)}" if most == len(texts) and not chosen else None
        chosen.append(best[0])
        patterns = [pattern for pattern in patterns if pattern[2] != best[0][2]]
        texts = texts[~found[best[0]]]
    return chosen[0] if len(chosen) == 1 else chosen
