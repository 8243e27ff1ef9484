"""The image and the composition of two parties, checked without a container engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "scripts" / "containers"


@pytest.fixture
def composition() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    return found


def test_the_linter_of_images_finds_nothing() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists():
        pytest.skip("hadolint is not installed")
    done = subprocess.run([linter, FOLDER / "Dockerfile"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("", 0)


def test_parties_share_a_link_that_leads_nowhere_and_nothing_else(composition: dict[str, Any]) -> None:
    bank, retailer = (composition["services"][name] for name in ("bank", "retailer"))
    assert set(bank["networks"]) & set(retailer["networks"]) == {"link"}
    assert composition["networks"]["link"]["internal"] is True
    assert not set(bank["volumes"]) & set(retailer["volumes"])
    assert [service["command"][0] for service in (bank, retailer)] == ["party-a", "party-b"]


def test_no_party_has_more_than_it_needs(composition: dict[str, Any]) -> None:
    for service in composition["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert "ports" not in service
        assert "privileged" not in service
    assert "\nUSER 10001\n" in (FOLDER / "Dockerfile").read_text()


def test_what_the_composition_names_exists(composition: dict[str, Any]) -> None:
    for service in composition["services"].values():
        root = (FOLDER / service["build"]["context"]).resolve()
        assert (root / service["build"]["dockerfile"]).samefile(FOLDER / "Dockerfile")
        assert (root / "constraints.txt").exists()
        used = {volume.partition(":")[0] for volume in service["volumes"] if not volume.startswith(".")}
        assert used <= composition["volumes"].keys()
