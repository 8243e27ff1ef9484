"""Tests of the versions in a run's notes."""

from __future__ import annotations

import json
import platform

import numpy as np

import opboost
from parties.runs.installed_versions import installed_versions
from protocols.messages.message import PROTOCOL_VERSION


def test_versions_are_those_that_run_here_and_go_into_a_file() -> None:
    found = json.loads(json.dumps(installed_versions()))
    assert list(found) == ["protocol_version", "python", "packages"]
    assert (found["protocol_version"], found["python"]) == (PROTOCOL_VERSION, platform.python_version())
    assert found["packages"]["numpy"] == np.__version__
    assert found["packages"]["opboost"] == opboost.__version__
