"""Create both ends of a data connection for the flow control that the job has chosen.

Each flow control has its own `Credit` class for the producer's end and its own receiver class for the consumer's end. A
new rule for how much a producer may send needs only a new `Credit` class.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headgate.config import FlowControl
from headgate.protocol.backoff import Backoff
from headgate.protocol.credit import SenderCredit
from headgate.protocol.plain_tcp import NoCredit, PlainReceiver
from headgate.protocol.receiver import Receiver
from headgate.protocol.sender import OpenView, Sender
from headgate.protocol.waiting_time import no_clock


def new_sender(
    flow_control: FlowControl,
    open_view: OpenView,
    on_data: Callable[[int], None],
    clock: Callable[[], float] = no_clock,
) -> Sender:
    """Create the producer's end. It spends credit, or sends without limit when the job uses no credit.

    `clock` measures how long data wait for credit.
    """
    if flow_control is not FlowControl.CREDIT:
        return Sender(open_view, on_data, NoCredit)
    return Sender(open_view, on_data, partial(SenderCredit, clock=clock))


def new_receiver(
    flow_control: FlowControl, segment_size: int, new_backoff: Callable[[], Backoff] = Backoff
) -> Receiver:
    """Create the consumer's end. It grants credit. When the job uses no credit, it stops reading instead."""
    kind = Receiver if flow_control is FlowControl.CREDIT else PlainReceiver
    return kind(segment_size, new_backoff)
