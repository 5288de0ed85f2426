"""A profile: the lines on which an operator spends its time, from sampled stacks of its task's thread."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final, Literal, NamedTuple, TypeAlias

#: The owner of a line of code: Headgate, Python's library or an installed package, or the user.
Kind: TypeAlias = Literal["headgate", "library", "user"]
#: How many lines `Profile.hottest` has.
HOTTEST: Final = 5


class Frame(NamedTuple):
    """A line that a thread executes. A frame contains no arguments, no variables and no program text."""

    file: str
    line: int
    function: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}" if self.file else self.function

    @property
    def short(self) -> str:
        """The frame as flame graphs show it, with only the last part of the file's path."""
        return f"{self.function} ({PurePath(self.file).name}:{self.line})" if self.file else self.function


#: The frame that replaces Headgate's own frames above the user's function.
HEADGATE: Final = Frame("", 0, "(headgate)", "headgate")
#: The frame that replaces the outer frames of a very deep stack.
LEFT_OUT: Final = Frame("", 0, "(outer frames)", "library")


class Stack(NamedTuple):
    """A stack, the outermost frame first, and the number of samples with this stack.

    `on` is the number of these samples in which the thread used a processor. It may be a fraction.
    """

    frames: tuple[Frame, ...]
    samples: int
    on: float


@dataclass(frozen=True, slots=True)
class HotLine:
    """A line with many samples. `share` is its share of the operator's samples, 0 to 1.

    `on` is the share of the line's samples in which the thread used a processor, 0 to 1.
    """

    frame: Frame
    share: float
    on: float

    def __str__(self) -> str:
        return f"{self.share:4.0%}  {self.on:4.0%} on the processor  {self.frame}"

    def as_json(self) -> dict[str, Any]:
        """Return the line as JSON values."""
        frame = self.frame
        return {
            "file": frame.file,
            "line": frame.line,
            "function": frame.function,
            "share": round(self.share, 4),
            "on": round(self.on, 4),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A profile of one subtask of an operator, taken for `seconds` seconds.

    There is one sample about every 10 ms. A look at the thread counts as all samples since the look before it. These
    are up to 21 if looks take much processor time, and more if a call holds Python's interpreter lock for longer.
    `samples` is the number of samples, and `looks` the number of looks. `stacks` has the samples in which the operator
    worked, the most frequent first. In the other samples, the task worked on other operators of its chain, did its own
    work, or waited. `left_out` is the number of the operator's samples without a stack, because there were too many
    stacks.

    `ended_at` is the time of its end on the driver's clock, in seconds since the epoch.

    `cpu_s` is the time in which the task's thread used a processor. `run_delay_s` is the time in which it was ready to
    run but no processor was free, or None if the machine does not provide this value. Both are in seconds.
    """

    operator: str
    subtask: int
    ended_at: float
    seconds: float
    looks: int
    samples: int
    cpu_s: float
    run_delay_s: float | None
    stacks: tuple[Stack, ...] = field(repr=False)
    left_out: int = 0

    @property
    def share(self) -> float:
        """The share of the samples in which the operator worked."""
        return self._worked / self.samples if self.samples else 0.0

    @property
    def on(self) -> float:
        """The share of the operator's samples in which its thread used a processor, 0 to 1.

        In the other samples the thread waited: for something outside, for a lock, or for Python's interpreter lock.
        """
        known = self._worked - self.left_out
        return sum(stack.on for stack in self.stacks) / known if known else 0.0

    @property
    def margin(self) -> float:
        """To within how many percentage points a share of 50 % is exact: half of its 95 % interval.

        It depends on the number of looks: 10 points with 100 looks, and 5 points with 400. Other shares are more exact.
        """
        return 100 / math.sqrt(max(1, self.looks))

    @property
    def _worked(self) -> int:
        return sum(stack.samples for stack in self.stacks) + self.left_out

    @property
    def hottest(self) -> list[HotLine]:
        """The five lines with most samples. A line has a `frame` (`file`, `line` and `function`), `share` and `on`.

        `share` is the line's share of the operator's samples. `on` is the share of the line's samples in which the
        thread used a processor. A sample counts for the innermost line of the user's code: code that is neither
        Headgate's, nor an installed package's, nor Python's library. A sample without such a line counts for its
        innermost line.
        """
        seen: dict[Frame, tuple[int, float]] = {}
        for stack in self.stacks:
            frame = _own(stack.frames)
            samples, on = seen.get(frame, (0, 0.0))
            seen[frame] = samples + stack.samples, on + stack.on
        hottest = sorted(seen.items(), key=lambda each: (-each[1][0], each[0]))[:HOTTEST]
        worked = self._worked
        return [HotLine(frame, samples / worked, on / samples) for frame, (samples, on) in hottest]

    def folded(self) -> str:
        """Return the stacks as text, for programs that draw flame graphs.

        Each line is one stack: its frames, separated by semicolons, a space, and its number of samples.
        """
        lines = (f"{';'.join(_folded(frame) for frame in stack.frames)} {stack.samples}" for stack in self.stacks)
        return "".join(f"{line}\n" for line in lines)

    def flame(self, most: int | None = None) -> dict[str, Any]:
        """Return the stacks as a tree of dicts.

        A node has `name`, `file`, `line`, `value` (its samples), `on` (its samples on a processor) and `children`, the
        node with most samples first. With `most`, the tree has at most `most` nodes: those with most samples.
        """
        root = _Node(Frame("", 0, f"{self.operator}[{self.subtask}]", "headgate"))
        for stack in self.stacks:
            root.add(stack)
        if most is not None:
            root.keep(most)
        return root.as_json()

    def as_json(self, most: int | None = None) -> dict[str, Any]:
        """Return the profile as JSON values. With `most`, its flame graph has at most `most` nodes."""
        return {
            "operator": self.operator,
            "subtask": self.subtask,
            "ended_at": round(self.ended_at, 3),
            "seconds": round(self.seconds, 3),
            "looks": self.looks,
            "margin": round(self.margin, 1),
            "samples": self.samples,
            "share": round(self.share, 4),
            "on": round(self.on, 4),
            "cpu_s": round(self.cpu_s, 4),
            "run_delay_s": None if self.run_delay_s is None else round(self.run_delay_s, 4),
            "left_out": self.left_out,
            "hottest": [line.as_json() for line in self.hottest],
            "flame": self.flame(most),
        }

    def __str__(self) -> str:
        head = f"'{self.operator}[{self.subtask}]' worked in {self.share:.0%} of {self.samples} samples"
        head += f", {self.on:.0%} of them on the processor; shares are exact to within {self.margin:.0f} points"
        return "\n".join([head, *map(str, self.hottest)])


class _Node:
    """A frame of a flame graph, with the frames that it called."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._samples = 0
        self._on = 0.0
        self._called: dict[Frame, _Node] = {}

    def add(self, stack: Stack) -> None:
        node = self
        node._count(stack)
        for frame in stack.frames:
            node = node._called.setdefault(frame, _Node(frame))
            node._count(stack)

    def _count(self, stack: Stack) -> None:
        self._samples += stack.samples
        self._on += stack.on

    def keep(self, most: int) -> None:
        """Drop all nodes except this one and those with most samples, `most` together. A caller has at least as many
        samples as each frame that it called, so it is dropped only after them."""
        waiting = [(-node._samples, frame, self) for frame, node in self._called.items()]
        heapq.heapify(waiting)
        for _ in range(most - 1):
            if not waiting:
                return
            _, frame, caller = heapq.heappop(waiting)
            node = caller._called[frame]
            for called, child in node._called.items():
                heapq.heappush(waiting, (-child._samples, called, node))
        for _, frame, caller in waiting:
            del caller._called[frame]

    def __lt__(self, other: _Node) -> bool:
        return self._frame < other._frame

    def as_json(self) -> dict[str, Any]:
        called = sorted(self._called.values(), key=lambda node: (-node._samples, node._frame))
        return {
            "name": self._frame.short,
            "file": self._frame.file,
            "line": self._frame.line,
            "value": self._samples,
            "on": round(self._on, 2),
            "children": [node.as_json() for node in called],
        }


def _own(frames: Sequence[Frame]) -> Frame:
    """Return the innermost frame of the user's code, or the innermost frame of all if there is no user code."""
    return next((frame for frame in reversed(frames) if frame.kind == "user"), frames[-1])


def _folded(frame: Frame) -> str:
    return frame.short.replace(";", ":").replace("\n", " ")


def without_headgate(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """Return a stack in which one frame replaces all frames above the user's function.

    The replaced frames belong to Headgate, and to the libraries through which it calls the function. A stack without a
    user function stays as it is. Stacks have the outermost frame first.
    """
    first = next((number for number, frame in enumerate(frames) if frame.kind == "user"), 0)
    above = LEFT_OUT if frames[0] == LEFT_OUT else HEADGATE
    return (above, *frames[first:]) if first else tuple(frames)


def merged(stacks: Iterable[Stack]) -> list[Stack]:
    """Return each different stack once, with the sum of its samples, the most frequent first."""
    seen: dict[tuple[Frame, ...], tuple[int, float]] = {}
    for frames, samples, on in stacks:
        before = seen.get(frames, (0, 0.0))
        seen[frames] = before[0] + samples, before[1] + on
    return [Stack(frames, *count) for frames, count in sorted(seen.items(), key=_most_frequent)]


def _most_frequent(item: tuple[tuple[Frame, ...], tuple[int, float]]) -> tuple[int, tuple[Frame, ...]]:
    return -item[1][0], item[0]


#: A profile in the form in which it is sent: the list of its different frames, and its stacks. A stack is a tuple of
#: the frames' indices in this list, `samples` and `on`.
Packed: TypeAlias = tuple[list[Frame], list[tuple[list[int], int, float]]]


def packed(stacks: Sequence[Stack], most_stacks: int, most_characters: int) -> tuple[Packed, int]:
    """Return (the stacks in the form in which they are sent, the samples of the stacks that exceed a limit).

    `most_characters` limits the size approximately.
    """
    places: dict[Frame, int] = {}
    chosen: list[tuple[list[int], int, float]] = []
    left_out = size = 0
    for stack in stacks:
        new = set(stack.frames) - places.keys()
        more = 8 * len(stack.frames) + sum(len(frame.file) + len(frame.function) + 32 for frame in new)
        if len(chosen) == most_stacks or size + more > most_characters:
            left_out += stack.samples
            continue
        size += more
        numbers = [places.setdefault(frame, len(places)) for frame in stack.frames]
        chosen.append((numbers, stack.samples, round(stack.on, 3)))
    return (list(places), chosen), left_out


def unpacked(frames: Sequence[Frame], stacks: Iterable[tuple[Sequence[int], int, float]]) -> tuple[Stack, ...]:
    """Return the stacks, the inverse of `packed`. Raises ValueError for values that cannot be a profile."""
    found = []
    for numbers, samples, on in stacks:
        if not numbers or samples < 1 or not 0 <= on <= samples + 0.001:
            raise ValueError(f"a stack of {len(numbers)} frames, seen {samples} times, {on} of them on a processor")
        if not all(0 <= number < len(frames) for number in numbers):
            raise ValueError(f"a stack with a frame that is not one of the {len(frames)}")
        found.append(Stack(tuple(frames[number] for number in numbers), samples, on))
    return tuple(found)


def kind_of(file: str, headgate: str, libraries: Sequence[str]) -> Kind:
    """Return the owner of the code in a file.

    `headgate` is the folder of this package, and `libraries` are the folders of Python's library.
    """
    if file.startswith(headgate):
        return "headgate"
    parts = PurePath(file).parts
    if file.startswith(("<frozen ", *libraries)) or "site-packages" in parts or "dist-packages" in parts:
        return "library"
    return "user"
