"""What benchmarks share: JSON lines, peak memory, free ports."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from pathlib import Path


def say(**facts: object) -> None:
    """Print one JSON line."""
    print(json.dumps(facts), flush=True)


def peak_bytes(*, reset: bool = False) -> int:
    """The process's largest resident memory since its start or the last reset (Linux)."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on."""
    with ExitStack() as probes:
        return [probes.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)]
