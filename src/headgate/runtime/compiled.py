"""Tells whether this installation has compiled the modules that every batch passes through; see hatch_build.py."""

from typing import Final

from headgate.exchange import writer

IS_COMPILED: Final = not (writer.__file__ or "").endswith(".py")
