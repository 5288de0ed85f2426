"""What each experiment asks, how it finds out, and what its answer does not show. The page of results shows these
texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Question:
    """The texts of one experiment. `caveat` says what the figures do not show."""

    asks: str
    set_up: str
    caveat: str


_MECHANISMS = (
    "One source sends to one sink over one connection, in batches of 100 rows. Each mechanism has its documented "
    "defaults, divided by one factor, and so are the times of the experiment."
)
_SCALED = (
    "Times and queues are divided by the same factor, so the figures in seconds are not those of the original systems. "
    "The buffers of credit and of plain TCP are not divided, so with them more rows are in flight. "
    "All mechanisms run on Headgate's runtime."
)

#: The questions by the name of the experiment.
QUESTIONS: Final[dict[str, Question]] = {
    "cost": Question(
        "What does credit cost, compared with plain TCP?",
        "One channel runs at full speed between two processes over loopback, with credit and with plain TCP in turn. "
        "Both have the same number of buffers.",
        "Loopback has no delay. On a network with a delay, the number of buffers decides: see sizing.",
    ),
    "isolation": Question(
        "Two independent streams share a connection, and one stalls. Does the other keep its rate?",
        "A.1 sends to B.3 and A.2 to B.4, both at a fixed rate. Both A are in one TaskManager, both B in another. B.4 "
        "then reads nothing for some seconds.",
        "The streams are independent. In an all-to-all exchange every writer stops in the end, whatever the flow "
        "control.",
    ),
    "sibling": Question(
        "Two independent streams share a connection, and one stalls. With which mechanism does the other go on?",
        "The streams of isolation, at a fixed rate, in batches of 100 rows. Each mechanism has its documented "
        "defaults, divided by one factor. The stall is long enough to fill the longest queue of all.",
        _SCALED,
    ),
    "burst": Question(
        "The load rises above what the sink takes, and falls again. What happens to latency and memory?",
        f"{_MECHANISMS} The load rises from 50 % to 150 % of what the sink takes, and falls to 50 %. Latency counts "
        "from the time at which a row was due.",
        _SCALED,
    ),
    "slow-sink": Question(
        "A sink becomes ten times slower. Does memory stay bounded, and what is lost or doubled?",
        f"{_MECHANISMS} The sink takes a tenth of the load for a time.",
        _SCALED,
    ),
    "skew": Question(
        "One key has most of the rows, and its sink cannot take them. What do the other keys get?",
        "One source sends the rows of a hot key to one sink, and those of all other keys to another. Together they "
        "take the whole load, but the hot key alone is 150 % of what its sink takes. Each mechanism has its "
        "documented defaults, divided by one factor.",
        "Both keys come from one source. A mechanism that stops it for the hot key stops the other keys too, and one "
        "that does not loses rows, or needs more memory with time.",
    ),
    "scale": Question(
        "One subtask of many stalls. How far does it reach, and how many signals does that take?",
        "Each source sends to ten sinks of its own, over ten TaskManagers. One sink stalls. Its source is fast, so the "
        "queue of the sink fills. Everything runs in virtual time, with up to 10,010 subtasks.",
        "A simulation has no limit of processors. Sources are independent but for the connections of TaskManagers.",
    ),
    "faults": Question(
        "A signal of a mechanism is lost, or the one who carries it is away. Who stays stuck, and who recovers?",
        "A sink stalls for a time. The first signal that stops its source is lost, or the first that lets the source "
        "go on. Or ZooKeeper is away from the middle of the stall on, or the coordinator forgets all it knew.",
        "One signal is lost, of one mechanism, in one round; of Storm 1.0, each one that lets sources go on. Credit "
        "and plain TCP are not here: their signals are in the connection of the data, and if that is lost, the job "
        "restarts.",
    ),
    "tuning": Question(
        "What does a limit cost that is too small, or too large?",
        "One source offers twice the rows that its sink takes. Each mechanism runs with small and large limits. Credit "
        "has no such limit.",
        "The best limit depends on the sink and on the delay of the network. Here both are constant. Credit has more "
        "rows in flight than the best limit: those in the buffers of both ends. TaskManagers report each 0.25 to "
        "0.5 s, so a shorter peak of the rows in flight does not show.",
    ),
    "waits": Question(
        "Mechanisms wait for up to a minute. Do these waits last as long as documented, and may they be divided?",
        "One source sends to one sink over one connection, in batches of 100 rows. The sink stalls, and then takes "
        "three or four times what comes. Three mechanisms have their documented defaults, not divided: messages of "
        "MaxPending fail after 30 s, sources of Storm 1.2 poll every 30 s, and a queue of Storm 2 has 32,768 messages. "
        "In virtual time, two of them run with several factors.",
        "Each mechanism runs once, with a load of its own, so the figures are not comparable with one another. "
        "StormZooKeeper needs a server, so the sweep leaves it out; a test divides the times of its policy.",
    ),
    "spark-streaming": Question(
        "Does SparkPid do what Spark Streaming's own controller does under the same load?",
        "Both get more rows than they can process, at the same cost per row, and start at the same rate. In the middle "
        "of the run the cost halves. Spark Streaming runs in a program of its own with its socket receiver, one core "
        "for the receiver and one for the batches.",
        "Spark needs about 0.1 s more for each batch, for its jobs and its Python workers. So its controller settles "
        "at fewer rows/s. At short batch intervals this share is large.",
    ),
    "storm": Question(
        "Do StormZooKeeper and StormStatus stop and start a source as Storm itself does under the same load?",
        "A source emits five times what a sink can process, in messages of one row. Storm 1.0, 1.2 and 2.8 run in "
        "local mode with two workers, and our mechanisms in two TaskManagers. Input queues have 512 messages. Storm "
        "1.2 has a timeout and a poll of 3 s.",
        "One source and one sink. On a newer Java, Storm 1.2 throttles nothing, because it takes the newest time in "
        "ZooKeeper as a number of 32 bits. The program of the lab repairs this.",
    ),
    "barrier": Question(
        "How long does a checkpoint's barrier take while a stream of the same connection is held back?",
        "The streams are those of isolation; their sources send barriers. First B.4 reads nothing, then it is slow.",
        "An aligned barrier of a slow stream always waits for the rows before it. Only overtaking helps.",
    ),
    "checkpoint": Question(
        "How long do checkpoints take under back-pressure, with barriers of each kind?",
        "Two sources at full speed distribute rows over two sinks, which read a tenth of what they could. Checkpoints "
        "are taken with aligned and unaligned barriers, with a timeout, and with debloating.",
        "An unaligned checkpoint is fast because it stores the queued rows. So it is larger.",
    ),
    "reach": Question(
        "How soon does a stalled sink stop its source, and how many bytes are in flight then?",
        "A source at full speed sends over one or two connections to a sink that suddenly reads nothing.",
        "The bytes in the kernel's socket buffers depend on the settings of the machine.",
    ),
    "sizing": Question(
        "How many buffers keep a network of known rate and delay busy?",
        "One channel runs between two processes over a line of known rate. A relay adds different delays.",
        "The line loses no packets, and carries one channel only.",
    ),
    "buffer-timeout": Question(
        "What do flush timeouts cost in latency, and gain in throughput?",
        "Writers distribute rows over 1 to 1,000 channels between two processes. Each timeout runs at full speed, and "
        "then at a tenth of the best rate.",
        "With many channels and a short timeout, buffers leave nearly empty. If a timeout does not carry the load, its "
        "latency does not count.",
    ),
}
