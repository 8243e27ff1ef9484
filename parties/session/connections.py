"""Connections: channels from a run file's keys and addresses, whose every message is logged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import ParamSpec

from parties.config.party_run import PartyRun
from parties.runs.run_log import RunLog, is_logged
from protocols.errors import KeyFileError
from protocols.transport.channel import Channel
from protocols.transport.keys import KeyPair, read_public, read_secret
from protocols.transport.zmq_channel import ConnectedChannel
from protocols.transport.zmq_listener import Listener

P = ParamSpec("P")


def _follow(channel: Channel, log: RunLog) -> None:
    """Log what goes over a channel."""
    channel.traffic.on_send, channel.traffic.on_receive = log.sent(channel.peer), log.received(channel.peer)
    channel.traffic.on_check = throttled(partial(log.step, "looked at"))
    channel.traffic.on_return = throttled(partial(log.step, "reconnected"))


def throttled(note: Callable[P, None]) -> Callable[P, None]:
    """Throttle a log of events by `is_logged`, so that a peer cannot fill a disk."""
    numbers = count(1)

    def noted(*event: P.args, **facts: P.kwargs) -> None:
        if is_logged(next(numbers)):
            note(*event, **facts)

    return noted


@contextmanager
def open_connections(run: PartyRun, insecure: bool) -> Iterator[Callable[[RunLog], dict[str, Channel]]]:
    """Read a run's keys, and yield a function that opens the channels to all peers, by name; close them at the end.

    A worker has a channel to its coordinator alone; it uses the other workers' keys for messages through that channel.
    """
    keys, wiring = own_keys(run, insecure), run.wiring
    public = peer_keys(run, keys)
    with ExitStack() as stack:

        def listening(log: RunLog, address: str) -> dict[str, Channel]:
            expected = {name: key for name, key in public.items() if name not in wiring.calls}
            if not expected:
                return {}

            def note(event: str) -> None:
                log.step("connection", event)

            listener = Listener(address, expected, keys=keys, timing=run.timing, on_event=note)
            stack.callback(listener.close)
            # The listener reports counts of its events when it is closed; the log must still be open then.
            log.before_close.append(listener.close)
            log.step("listening", f"{run.party} waits for {', '.join(expected)} at {listener.address}")
            return {name: listener.channel(name) for name in expected}

        def open_channels(log: RunLog) -> dict[str, Channel]:
            channels = {} if wiring.listen is None else listening(log, wiring.listen)
            for name, address in wiring.calls.items():
                log.step("connecting", f"{run.party} connects to {name} at {address}")
                channels[name] = ConnectedChannel(
                    address, name=run.party, peer=name, keys=keys, peer_key=public[name], timing=run.timing
                )
                stack.callback(channels[name].close)
                log.before_close.append(channels[name].close)
            for channel in channels.values():
                _follow(channel, log)
            return channels

        yield open_channels


def own_keys(run: PartyRun, insecure: bool) -> KeyPair | None:
    """The run's own keys; None for a run in plain text."""
    if insecure:
        return None
    if run.secret_key is None:
        raise KeyFileError(
            "the run file names no secret_key; make one with `opboost keygen`, or type --insecure for a run on "
            "loopback. Nothing was sent"
        )
    return read_secret(run.secret_key)


def peer_keys(run: PartyRun, keys: KeyPair | None) -> dict[str, bytes | None]:
    """The peers' public keys by name; refused if two are equal, so that one party cannot act as several."""
    keys_by_name = {peer.name: peer_key(peer.public_key, peer.name, keys is None) for peer in run.wiring.peers}
    if keys is not None and keys.public in keys_by_name.values():
        raise KeyFileError("a peer's public key is this party's own. Nothing was sent")
    if keys is not None and len(set(keys_by_name.values())) < len(keys_by_name):
        raise KeyFileError("two peers have the same public key. Nothing was sent")
    return keys_by_name


def peer_key(path: Path | None, name: str, insecure: bool) -> bytes | None:
    """A peer's public key; None for a run in plain text."""
    if insecure:
        return None
    if path is None:
        raise KeyFileError(f"the run file names no public_key for {name}. Nothing was sent")
    return read_public(path)
