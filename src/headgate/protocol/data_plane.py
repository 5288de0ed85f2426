"""Create both ends of a data connection for the flow control that the job has chosen.

The producer's end differs in its `Credit` alone: another rule for how much it may send is another class of these
methods. The consumer's end differs in the receiver.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.config import FlowControl
from headgate.protocol.backoff import Backoff
from headgate.protocol.credit import SenderCredit
from headgate.protocol.plain_tcp import NoCredit, PlainReceiver
from headgate.protocol.receiver import Receiver
from headgate.protocol.sender import OpenView, Sender


def new_sender(flow_control: FlowControl, open_view: OpenView, on_data: Callable[[int], None]) -> Sender:
    """Create the producer's end: it spends credit, or sends without limit when the job uses no credit."""
    return Sender(open_view, on_data, SenderCredit if flow_control is FlowControl.CREDIT else NoCredit)


def new_receiver(
    flow_control: FlowControl, segment_size: int, new_backoff: Callable[[], Backoff] = Backoff
) -> Receiver:
    """Create the consumer's end: it grants credit, or stops reading when the job uses no credit."""
    kind = Receiver if flow_control is FlowControl.CREDIT else PlainReceiver
    return kind(segment_size, new_backoff)
