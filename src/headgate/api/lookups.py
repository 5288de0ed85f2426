"""`hg.lookups`: tables outside of the job that `DataStream.lookup` asks for the keys of its rows."""

from __future__ import annotations

from headgate.connectors.adbc.adbc_functions import lookup as adbc

__all__ = ["adbc"]
