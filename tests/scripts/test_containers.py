"""The image and the composition of two parties, checked without a container engine."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import opboost

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "scripts" / "containers"


@pytest.fixture
def composition() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    return found


def linted(name: str, file: Path) -> str:
    """What a linter says of a file."""
    linter = Path(sys.executable).with_name(name)
    if not linter.exists():
        pytest.skip(f"{name} is not installed")
    return subprocess.run([linter, file], capture_output=True, text=True, timeout=60, check=False).stdout


def test_the_linter_of_images_finds_nothing() -> None:
    assert linted("hadolint", FOLDER / "Dockerfile") == ""


def test_the_linter_of_compositions_finds_nothing_but_images_without_a_digest() -> None:
    # The image is built on the spot.
    assert set(re.findall(r"CL-\d{4}", linted("compose-lint", FOLDER / "compose.yaml"))) <= {"CL-0019"}


def test_the_linter_of_compositions_finds_a_privileged_service(tmp_path: Path) -> None:
    text = (FOLDER / "compose.yaml").read_text().replace("  read_only: true\n", "  privileged: true\n")
    (tmp_path / "compose.yaml").write_text(text)
    assert "privileged" in linted("compose-lint", tmp_path / "compose.yaml")


def pins(path: Path) -> dict[str, str]:
    """Versions by name, as names are compared."""
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", path.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def test_what_an_image_downloads_has_digests_of_the_versions_that_are_tested() -> None:
    hashed, tested = pins(FOLDER / "requirements.txt"), pins(ROOT / "constraints.txt")
    # Of other platforms and interpreters.
    assert {name: v for name, v in hashed.items() if tested.get(name, v) != v} == {}
    assert hashed.keys() - tested.keys() <= {"colorama", "pycparser"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {re.split(r"[^\w.-]", one)[0].lower() for one in project["project"]["dependencies"]}
    assert needed | {"hatchling"} <= hashed.keys()
    blocks = re.split(r"^(?=\w)", (FOLDER / "requirements.txt").read_text(), flags=re.MULTILINE)[1:]
    assert len(blocks) == len(hashed)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", block) for block in blocks)
    assert "--require-hashes" in (FOLDER / "Dockerfile").read_text()


def test_the_image_has_the_version_of_the_package(composition: dict[str, Any]) -> None:
    assert {one["image"] for one in composition["services"].values()} == {f"opboost:{opboost.__version__}"}


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
        used = {volume.partition(":")[0] for volume in service["volumes"] if not volume.startswith(".")}
        assert used <= composition["volumes"].keys()
