"""What a release leaves open whatever its epsilon, in words that stand under a guarantee's `not_protected`."""

from __future__ import annotations

from dataclasses import replace

from opboost.privacy.guarantee import Guarantee

# What stands under `not_protected` where new records may be answered for from their exact values.
ROUTED_ANSWERS = (
    "new records that are scored in mode routed: every split test is answered exactly, one bit per test and record, "
    "without differential privacy"
)

# And where what was drawn is kept, and drawn anew if the exact value is another one.
CHANGED_VALUES = (
    "whether a value was changed between two releases: asked for again, a record or a column gets the same answer if "
    "nothing changed and another one if something did: one bit, whatever the epsilon"
)


def exposed(*, allow_routed: bool, redraws: bool) -> tuple[str, ...]:
    """What a release leaves open besides the columns, for `compose`.

    Parameters
    ----------
    allow_routed : bool
        Whether split tests about new records may be answered from exact values.
    redraws : bool
        Whether a value that was changed since it was drawn is drawn anew.
    """
    return (ROUTED_ANSWERS,) * allow_routed + (CHANGED_VALUES,) * redraws


def with_tests(guarantee: Guarantee, n_tests: int) -> Guarantee:
    """The same guarantee with the number of split tests that `ROUTED_ANSWERS` speaks of, where that stands in it."""
    counted = f"{ROUTED_ANSWERS}; the model has {n_tests} tests on these columns, so {n_tests} exact bits per record"
    listed = (counted if one == ROUTED_ANSWERS else one for one in guarantee.not_protected)
    return replace(guarantee, not_protected=tuple(listed))
