"""Commands of a demo's parties at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from parties.commands.demo_folder import run_together
from parties.errors import PartyError


def test_a_party_that_fails_is_named_with_its_reason(tmp_path: Path) -> None:
    folders = {"bank": tmp_path}
    with pytest.raises(PartyError, match=r"a party of the demo failed\. bank: error: .*run\.yaml"):
        run_together([["party-a", "bank"]], folders)
