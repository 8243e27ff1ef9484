"""Conversations of a service with a model's passive parties, one after the other until it is told to stop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from parties.config.vertical import ActiveRun
from parties.jobs.life_cycle import Terminal, logged
from parties.runs.joint_model import JointModel
from parties.runs.run_folder import RunFolder
from parties.runs.run_log import EventThrottle
from parties.session.connections import open_connections
from parties.vertical.prediction_client import Session, session
from protocols.transport.channel import Channel


@dataclass(frozen=True, slots=True, eq=False)
class Conversations:
    """Conversations about one model, a `parties.service.scorer.Connect`.

    Their events are throttled together: a passive party that breaks off one conversation after the other fills no disk.

    Attributes
    ----------
    run : ActiveRun
    model : JointModel
    insecure : bool
    """

    run: ActiveRun
    model: JointModel
    insecure: bool
    _throttle: EventThrottle = field(default_factory=EventThrottle, init=False)

    @contextmanager
    def __call__(self, wait: Callable[[Sequence[Channel]], bool]) -> Iterator[Session | None]:
        """Open a conversation with all passive parties once `wait` returns True."""
        run = self.run
        # The service waits for passive parties without a time limit.
        patient = run.model_copy(update={"wait": math.inf})
        logging = logged(RunFolder(run.run_folder), Terminal(), is_service=True, throttle=self._throttle)
        with logging as log, open_connections(patient, self.insecure) as open_channels:
            channels = list(open_channels(log).values())
            if not wait(channels):
                yield None
                return
            reveal = run.reveal.words()
            with session(self.model, channels, party=run.party, run_id=run.run_id, reveal=reveal) as asking:
                log.step(
                    "connected",
                    f"{run.party} asks {', '.join(channel.peer for channel in channels)} until it is told to stop",
                )
                yield asking
