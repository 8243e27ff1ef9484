"""A trained bank and shop whose services run as processes, and callers over HTTP."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from parties.jobs.answer_vertical import serve_passive
from parties.jobs.life_cycle import Terminal
from parties.jobs.predict_vertical import predict_active
from parties.jobs.train_vertical import train_active, train_passive
from tests.support.addresses import free_addresses
from tests.support.processes import Command

SILENT = Terminal()
TOKEN = "a-token-of-this-test-that-is-long-enough"
WAIT_S = 30

Outcomes = Callable[..., dict[str, Any]]


class Trained:
    """A bank and a shop with two trained models, `spring` and `summer`, and the scores of `opboost predict`."""

    def __init__(self, sites: Any, outcomes: Outcomes) -> None:
        self.bank, self.shop = sites.bank, sites.shop
        self.expected: dict[str, pd.DataFrame] = {}
        for run_id, n_trees in (("spring", 5), ("summer", 7)):
            bank, shop = self.write(run_id, n_trees).values()
            calls = {
                "bank": lambda bank=bank: train_active(bank, insecure=False, terminal=SILENT),
                "shop": lambda shop=shop: train_passive(shop, insecure=False, terminal=SILENT),
            }
            found = outcomes(calls)
            assert not [one for one in found.values() if isinstance(one, BaseException)], found
            self.expected[run_id] = self.predict(run_id, bank, shop, outcomes)

    def write(self, run_id: str, n_trees: int) -> dict[str, Path]:
        """Run files of one model, named after it."""
        (address,) = free_addresses(1)
        self.bank.run |= {"run_id": run_id, "listen": address, "model": {"n_estimators": n_trees, "max_depth": 3}}
        self.shop.run |= {"run_id": run_id, "connect": address}
        return {site.party: site.write().rename(site.path / f"{run_id}.yaml") for site in (self.bank, self.shop)}

    def predict(self, run_id: str, bank: Path, shop: Path, outcomes: Outcomes) -> pd.DataFrame:
        out = self.bank.path / f"{run_id}.csv"
        given: Any = {"data": None, "ids": None, "insecure": False, "terminal": SILENT}
        calls = {
            "bank": lambda: predict_active(bank, mode="routed", out=out, reasons=2, **given),
            "shop": lambda: serve_passive(shop, data=None, insecure=False, terminal=SILENT),
        }
        found = outcomes(calls)
        assert found["bank"] == out, found
        return pd.read_csv(out, index_col="id", keep_default_na=False)

    def serving_run(self, run_id: str, **http: Any) -> Path:
        """The run file that `opboost serve` reads: of this model, with a section `http`."""
        run = yaml.safe_load((self.bank.path / f"{run_id}.yaml").read_text())
        path: Path = self.bank.path / "current.yaml"
        path.write_text(yaml.safe_dump({**run, "http": {"tokens": "tokens.txt", **http}}))
        return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, make_sites: Callable[[Path], Any], outcomes: Outcomes) -> Trained:
    """Both models, and a file with the token."""
    found = Trained(make_sites(tmp_path_factory.mktemp("sites")), outcomes)
    tokens = found.bank.path / "tokens.txt"
    tokens.touch(0o600)
    tokens.write_text(f"scoring {TOKEN}\n")
    return found


def place() -> str:
    return free_addresses(1)[0].removeprefix("tcp://")


def until(holds: Callable[[], Any], *processes: Command) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (found := holds()):
        assert all(process.poll() is None for process in processes), [p.communicate(5) for p in processes if p.poll()]
        assert time.monotonic() < deadline, "not within the time"
        time.sleep(0.02)
    return found


class Service:
    """A's service as a process, and a client."""

    def __init__(self, run_file: Path, *, verify: ssl.SSLContext | bool = True) -> None:
        http = yaml.safe_load(run_file.read_text())["http"]
        scheme = "https" if "certificate" in http else "http"
        self.url = f"{scheme}://{http['listen']}"
        self.client = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=WAIT_S, verify=verify
        )
        self.process = Command("serve", str(run_file))

    def get(self, path: str) -> tuple[int, Any]:
        try:
            found = self.client.get(path)
        except httpx.TransportError:
            return 0, None
        return found.status_code, found.json() if "json" in found.headers["content-type"] else found.text

    def score(self, *records: Any, **settings: Any) -> httpx.Response:
        bodies = [one if isinstance(one, dict) else {"id": one} for one in records]
        return self.client.post("/v1/scores", json={"records": bodies, **settings})

    def wait_for(self, path: str, status: int, *processes: Command) -> Any:
        return until(lambda: (found := self.get(path))[0] == status and found, self.process, *processes)[1]


@contextmanager
def serving(run_file: Path, **settings: Any) -> Iterator[Service]:
    service = Service(run_file, **settings)
    try:
        yield service
    finally:
        service.client.close()
        service.process.kill()
        service.process.wait(10)


@contextmanager
def answering(trained: Trained, run_id: str) -> Iterator[Command]:
    """The shop's service for one model."""
    process = Command("party-b", str(trained.shop.path / f"{run_id}.yaml"), "--serve")
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def certificate(folder: Path) -> ssl.SSLContext:
    """A self-signed certificate for loopback and its key, and a client's trust in it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bank")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(*plain))
    return ssl.create_default_context(cafile=str(folder / "cert.pem"))
