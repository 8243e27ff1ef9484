"""Every script can be loaded: what it imports is there under the names that it uses."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.mark.parametrize("script", sorted(SCRIPTS.rglob("*.py")), ids=lambda path: str(path.relative_to(SCRIPTS)))
def test_a_script_finds_what_it_imports(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(script.parent)
    runpy.run_path(str(script), run_name=script.stem)
