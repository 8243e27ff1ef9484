"""A plan and two finished runs to report on, and a real browser, told what to do over a pipe."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from parties.jobs.train_horizontal import train_coordinator, train_worker
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.runs.run_log import RunLog
from protocols.transport.keys import generate
from tests.support.addresses import free_addresses

# Every wait for the browser ends after so many seconds.
PATIENCE_S = 60

# The browser reads commands from descriptor 3 and answers on 4.
_LAUNCH = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, make_sites: Any, outcomes: Any) -> Any:
    """Both parties' folders after a run that wrote reports."""
    sites = make_sites(tmp_path_factory.mktemp("finished"))
    for site in (sites.bank, sites.shop):
        site.run["report"] = True
    sites.bank.run["correct_noise"] = True
    sites.bank.run["model"]["validation_fraction"] = 0.25
    calls = {
        site.party: lambda site=site, train=train: train(site.write(), insecure=False, terminal=Terminal())
        for site, train in ((sites.bank, train_active), (sites.shop, train_passive))
    }
    for found in outcomes(calls).values():
        assert not isinstance(found, BaseException), found
    return sites


CLINICS = ("north", "south", "west")


class Hospitals:
    """A hub and three clinics with rows of their own, each with what a run needs in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # Everything that the hub received, once it has run.
        self.received: list[bytes] = []
        (address,) = free_addresses(1)
        names = ("hub", *CLINICS)
        for name in names:
            generate(root / name / "keys", name)
        for name in names:
            for other in names:
                (root / name / "keys" / f"{other}.public").write_text(
                    (root / other / "keys" / f"{other}.public").read_text()
                )
        self.schema = {
            "id": "id",
            "label": "ill",
            "columns": {
                "age": {"lower": 0, "upper": 100},
                "dose": {"lower": 0, "upper": 5},
                "size": {"lower": 0, "upper": 200},
            },
        }
        self.training = {
            "epsilon": 3.0,
            "delta": 1e-6,
            "noise": "workers",
            "workers": 3,
            "threshold": 2,
            "honest": 2,
            "sgbdt": {"n_estimators": 8, "max_depth": 2},
        }
        common = {"run_id": "spring", "schema": "schema.yaml", "timeout": 10, "wait": 60}
        self.runs: dict[str, dict[str, Any]] = {
            "hub": {
                **common,
                "role": "coordinator",
                "party": "hub",
                "secret_key": "keys/hub.secret",
                "listen": address,
                "workers": [{"name": name, "public_key": f"keys/{name}.public"} for name in CLINICS],
            }
        }
        self.tables = {}
        draw = np.random.default_rng(4)
        for name in CLINICS:
            self.runs[name] = {
                **common,
                "role": "worker",
                "party": name,
                "secret_key": f"keys/{name}.secret",
                "data": "data.csv",
                "connect": address,
                "coordinator": {"name": "hub", "public_key": "keys/hub.public"},
                "ledger": {"epsilon": 5.0},
                "peers": [{"name": other, "public_key": f"keys/{other}.public"} for other in CLINICS if other != name],
            }
            values = (draw.random((90, 3)) * (100, 5, 200)).round(6)
            table = pd.DataFrame(values, columns=list(self.schema["columns"])).assign(
                ill=(values[:, 0] > 50).astype(int)
            )
            table.insert(0, "id", [f"{name}-{i:03}" for i in range(90)])
            self.tables[name] = table

    def write(self, name: str) -> Path:
        folder = self.root / name
        (folder / "schema.yaml").write_text(yaml.safe_dump(self.schema, sort_keys=False))
        (folder / "run.yaml").write_text(yaml.safe_dump({**self.runs[name], "training": self.training}))
        if name in self.tables:
            self.tables[name].to_csv(folder / "data.csv", index=False)
        return folder / "run.yaml"

    def folder(self, name: str) -> Path:
        return self.root / name / "runs" / "spring"


@pytest.fixture
def hospitals(tmp_path: Path) -> Hospitals:
    """A hub and its clinics before a run."""
    return Hospitals(tmp_path)


@pytest.fixture(scope="session")
def treated(tmp_path_factory: pytest.TempPathFactory, outcomes: Any) -> Hospitals:
    """The same after it; one of north's rows holds values that occur nowhere else."""
    found = Hospitals(tmp_path_factory.mktemp("treated"))
    found.tables["north"].loc[7, ["id", "age", "dose"]] = ["zebra-7731-quagga", 73.19046285, 2.71828182846]
    original = RunLog.received

    def received(log: RunLog, peer: str) -> Any:
        note = original(log, peer)

        def tap(kind: str, frames: Any) -> None:
            if peer != "hub":
                found.received.extend(bytes(frame) for frame in frames)
            note(kind, frames)

        return tap

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunLog, "received", received)
        calls = {
            name: lambda name=name, run=train_coordinator if name == "hub" else train_worker: run(
                found.write(name), insecure=False, terminal=Terminal()
            )
            for name in found.runs
        }
        for one in outcomes(calls).values():
            assert not isinstance(one, BaseException), one
    return found


class Browser:
    """One page of headless Chromium, driven by the DevTools protocol."""

    def __init__(self, program: str, folder: Path) -> None:
        # High numbers, so that none of them is in the way of 3 and 4.
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (to_read, to_write)]
        options = [
            "--headless",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            f"--user-data-dir={folder}",
            "about:blank",
        ]
        with (folder.parent / "browser.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _LAUNCH, *map(str, high), program, *options],
                pass_fds=high,
                stdout=log,
                stderr=log,
            )
        for end in (to_read, to_write, *high):
            os.close(end)
        self._rest, self._number = b"", 0
        self._events: list[dict[str, Any]] = []
        page = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = ""
        self._session = self._call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, path: Path, *, width: int, dark: bool = False) -> None:
        """Show a file in a window of a width, and forget what happened before."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self._call("Page.navigate", url=path.resolve().as_uri())
        self._wait_for("Page.loadEventFired")

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def print(self) -> bytes:
        """The page on A4 paper, as a PDF file."""
        return base64.b64decode(self._call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"])

    @property
    def complaints(self) -> list[str]:
        """Everything on the console, and every error, since the page was opened."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self._events if event["method"] in kinds]

    @property
    def requests(self) -> list[str]:
        """Every address that was asked for since the page was opened."""
        kind = "Network.requestWillBeSent"
        return [event["params"]["request"]["url"] for event in self._events if event["method"] == kind]

    def close(self) -> None:
        for end in (self._to, self._from):
            os.close(end)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if getattr(self, "_session", ""):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            if "method" in answer:
                self._events.append(answer)

    def _wait_for(self, method: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not any(event["method"] == method for event in self._events):
            self._events.append({"method": "", **self._next(deadline)})

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            is_ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            assert is_ready, f"the browser said nothing for {PATIENCE_S} s"
            piece = os.read(self._from, 1 << 16)
            assert piece, "the browser went away"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Headless Chromium; the test skips where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    program = next((path for path in map(shutil.which, names) if path), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is installed (Debian: apt-get install chromium)")
    found = Browser(program, tmp_path_factory.mktemp("browser") / "profile")
    yield found
    found.close()
