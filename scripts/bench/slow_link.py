"""A slow link on loopback: passes bytes between two ports at a given rate, each after a delay, in either direction.

Stands in for a network between two parties' processes where the system's own means (netem) would need rights and would
slow down everybody else on the machine. Runs until it is ended.

    python scripts/bench/slow_link.py LISTEN_PORT TARGET_PORT --mbit 100 --delay-ms 10
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass

# Bytes that are read at a time.
READ_BYTES = 1 << 14

# What the link's router would hold, beside the bytes that are on their way: a sender that is faster has to wait.
ROUTER_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Link:
    """What each direction lets through.

    Attributes
    ----------
    rate : float
        Bytes per second.
    delay_s : float
        From one end to the other.
    """

    rate: float
    delay_s: float

    async def connect(self, near: asyncio.StreamReader, back: asyncio.StreamWriter, target: int) -> None:
        """Serve one connection until either side closes it."""
        try:
            far, forth = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            back.close()
            return
        await asyncio.gather(self.one_way(near, forth), self.one_way(far, back))

    async def one_way(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Pass bytes on until their source ends."""
        n_waiting = max(1, int((self.rate * self.delay_s + ROUTER_BYTES) / READ_BYTES))
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(n_waiting)
        await asyncio.gather(self.take(source, waiting), self.give(waiting, sink), return_exceptions=True)
        sink.close()

    async def take(self, source: asyncio.StreamReader, waiting: asyncio.Queue[tuple[float, bytes]]) -> None:
        """Note for every piece when its last byte comes out of the link; an empty piece is the end."""
        clock = asyncio.get_running_loop().time
        is_free = 0.0
        data = b"?"
        while data:
            try:
                data = await source.read(READ_BYTES)
            except OSError:
                data = b""
            is_free = max(clock(), is_free) + len(data) / self.rate
            await waiting.put((is_free + self.delay_s, data))

    async def give(self, waiting: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter) -> None:
        """Write every piece when it is due."""
        clock = asyncio.get_running_loop().time
        is_open = True
        while True:
            due, data = await waiting.get()
            await asyncio.sleep(max(0.0, due - clock()))
            if not data:
                return
            if is_open:
                try:
                    sink.write(data)
                    await sink.drain()
                except OSError:
                    is_open = False


async def serve(listen: int, target: int, link: Link) -> None:
    """Take connections until the process is ended."""
    server = await asyncio.start_server(
        lambda near, back: link.connect(near, back, target), "127.0.0.1", listen, limit=READ_BYTES
    )
    async with server:
        await server.serve_forever()


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description="Pass bytes between two ports on loopback as a slow link would.")
    parser.add_argument("listen", type=int)
    parser.add_argument("target", type=int)
    parser.add_argument("--mbit", type=float, required=True, help="megabits per second, in each direction")
    parser.add_argument("--delay-ms", type=float, required=True, help="from one end to the other")
    options = parser.parse_args()
    asyncio.run(serve(options.listen, options.target, Link(options.mbit * 1e6 / 8, options.delay_ms / 1000)))


if __name__ == "__main__":
    main()
