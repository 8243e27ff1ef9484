"""Parties on small tables, as in the tests of the parties; peers that recite a script; what no fault may leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from protocols.messages.message import Message
from protocols.transport.codec import Frame
from tests.support.outcomes import outcomes
from tests.support.recital import Recital
from tests.support.sites import sites
from tests.support.trial import trial

__all__ = ["outcomes", "sites", "trial"]


@pytest.fixture(scope="session")
def recital() -> Callable[[str, Sequence[Message | list[Frame]]], Recital]:
    """Make a channel to a peer that recites."""
    return Recital
