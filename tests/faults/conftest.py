"""Parties on small tables, as in the tests of the parties; peers that recite a script; what no fault may leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from protocols.messages.message import Message
from protocols.transport.codec import Frame
from tests.parties.conftest import outcomes, sites, trial
from tests.support.recital import Recital

__all__ = ["outcomes", "sites", "trial"]


@pytest.fixture(scope="session")
def recital() -> Callable[[str, Sequence[Message | list[Frame]]], Recital]:
    """Make a channel to a peer that recites."""
    return Recital
