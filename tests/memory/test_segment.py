"""The arena: one page-aligned mapping, cut without gaps or overlaps, and unmapped at the end."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from headgate.errors import ExchangeError
from headgate.memory.segment import SegmentArena


def test_segments_tile_one_page_aligned_mapping() -> None:
    arena = SegmentArena(5, 512)
    starts = [np.frombuffer(segment.view, np.uint8).ctypes.data for segment in arena.segments]
    assert starts[0] % mmap.PAGESIZE == 0
    assert [start - starts[0] for start in starts] == [0, 512, 1024, 1536, 2048]
    assert [(segment.index, len(segment.view)) for segment in arena.segments] == [(i, 512) for i in range(5)]
    arena.close()


def test_segments_are_writable_and_do_not_overlap() -> None:
    arena = SegmentArena(3, 512)
    for segment in arena.segments:
        segment.view[:] = bytes([segment.index + 1]) * 512
    assert [bytes(segment.view) == bytes([segment.index + 1]) * 512 for segment in arena.segments] == [True] * 3
    arena.close()


def test_closed_memory_cannot_be_read_and_closing_again_is_harmless() -> None:
    arena = SegmentArena(2, 512)
    arena.close()
    arena.close()
    with pytest.raises(ValueError, match="released"):
        arena.segments[0].view[0]


def test_closing_under_a_living_view_names_the_cause() -> None:
    arena = SegmentArena(2, 512)
    view = arena.segments[1].view[10:20]
    with pytest.raises(ExchangeError, match="a view into a segment is still alive"):
        arena.close()
    view.release()
    arena.close()
