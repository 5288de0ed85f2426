"""The sink into a Delta table, through the library deltalake.

A commit of files records two application transactions of Delta's protocol. `headgate/RUN/TAKEN_BY` has the number of
the checkpoint, so the sink commits no checkpoint twice. `headgate/RUN` has the epoch of the owner. If two programs
commit at the same time, Delta refuses the later commit, because both commits name this application.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from headgate.connectors.file_sinks.partition_by import NO_VALUE, check_partitioning
from headgate.connectors.tables.table_columns import NewColumns, check_columns, table_columns
from headgate.connectors.tables.table_sink import ATTEMPTS, Epoch, TableMode, TableSink
from headgate.errors import ConfigError, PlanError, SinkError, Superseded
from headgate.filesystems import absolute, locate

#: What the library draws before the cause of an error.
_DRAWING: Final = re.compile(r"\x1b\[[0-9;]*m|↳")
#: The most lines of an error's causes.
_MOST_CAUSES: Final = 4


def delta_library() -> Any:
    """Return the module `deltalake`. Raises ConfigError if it is not installed."""
    try:
        return import_module("deltalake")
    except ImportError as error:
        raise ConfigError(f"Delta needs the package deltalake ({error}): pip install 'headgate[delta]'") from None


def delta_error(error: Exception) -> str:
    """Return the library's error and its causes in one line. The library draws them as a tree, in colours."""
    lines = [_DRAWING.sub("", line).strip() for line in str(error).splitlines()]
    return ": ".join(filter(None, lines[:_MOST_CAUSES]))


class DeltaSink(TableSink):
    """A sink into a Delta table; see `hg.sinks.delta`."""

    def __init__(self, uri: str | os.PathLike[str], partition_by: Sequence[str], *, mode: TableMode,
                 new_columns: NewColumns, storage_options: Mapping[str, str], file_bytes: int) -> None:  # fmt: skip
        delta_library()
        self._uri = absolute(uri)
        super().__init__(f"delta: {self._uri}", mode, new_columns, file_bytes)
        self._partition_by = tuple(partition_by)
        self._storage_options = dict(storage_options)
        #: The table in the last version that was read, and the stamp of this version's file in the log.
        self._kept: Any = None
        self._stamp: tuple[Any, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}

    def check(self, schema: pa.Schema) -> None:
        """Check that the table takes the rows, or if there is no table, that it can be created."""
        self.check_place(self._uri)
        with self._errors():
            if self._exists():
                self._check_table(self._table(), schema)
            else:
                check_partitioning(schema, self._partition_by)
                self._as_delta(table_columns(schema))

    def has_files(self) -> bool:
        """Return whether there is a table, and its newest version has files."""
        with self._errors():
            return self._exists() and bool(self._table().file_uris())

    def opened(self, schema: pa.Schema) -> tuple[str, pa.Schema, Sequence[str]]:
        """Create the table if it is not there. Add new columns if the user wants that."""
        with self._errors():
            if not self._exists():
                delta_library().DeltaTable.create(
                    self._uri, self._as_delta(table_columns(schema)), mode="ignore",
                    partition_by=list(self._partition_by), storage_options=self._storage_options,
                )  # fmt: skip
            table = self._table()
            if added := list(self._check_table(table, schema)):
                table.alter.add_columns(list(self._as_delta(pa.schema(added)).fields))
                table = self._table()
            return self._uri, _columns(table), table.metadata().partition_columns

    def fence(self, epoch: Epoch) -> None:
        """Commit the owner, without files."""
        self._commit(epoch, [])

    def add(self, epoch: Epoch, files: Sequence[dict[str, Any]]) -> None:
        """Add the files, unless the table has the epoch."""
        self._commit(epoch, files)

    def _commit(self, epoch: Epoch, files: Sequence[dict[str, Any]]) -> None:
        library = delta_library()
        owner, taken = f"headgate/{epoch.run}", f"headgate/{epoch.run}/{epoch.taken_by}"
        # Without checkpoints there is one commit, whose number is 1.
        transactions = [library.Transaction(owner, epoch.owner)]
        transactions += [library.Transaction(taken, epoch.checkpoint or 1)] if files else []
        properties = library.CommitProperties(app_transactions=transactions)
        for _ in range(ATTEMPTS):
            with self._errors():
                table = self._table()
                if (table.transaction_version(owner) or 0) > epoch.owner:
                    raise Superseded(f"{self._what}: another program has taken over the results of run {epoch.run}")
                if files and (table.transaction_version(taken) or 0) >= (epoch.checkpoint or 1):
                    return
                columns = _columns(table)
                self.check_files(files, columns, table.metadata().partition_columns)
                actions = [_action(columns, file) for file in files]
                try:
                    table.create_write_transaction(
                        actions, "append", table.schema(), table.metadata().partition_columns,
                        commit_properties=properties,
                    )  # fmt: skip
                    return
                except library.exceptions.CommitFailedError as error:  # look again: who was faster?
                    failure = error
        raise SinkError(f"{self._what}: other writers were faster {ATTEMPTS} times: {failure}")

    def _check_table(self, table: Any, schema: pa.Schema) -> pa.Schema:
        folders = tuple(table.metadata().partition_columns)
        if self._partition_by and self._partition_by != folders:
            raise PlanError(f"{self._what}: the table is partitioned by {folders}, not by {self._partition_by}")
        added = check_columns(self._what, schema, _columns(table), self._new_columns)
        check_partitioning(_columns(table), folders)
        self._as_delta(added)
        return added

    def _as_delta(self, schema: pa.Schema) -> Any:
        from_arrow = delta_library().Schema.from_arrow
        for column in schema:
            try:
                from_arrow(pa.schema([column]))
            except Exception:  # its text has the stack of the library
                raise PlanError(
                    f"{self._what}: column {column.name!r} is {column.type}, and Delta has no such type; convert it "
                    "with select"
                ) from None
        return from_arrow(schema)

    def _exists(self) -> bool:
        return bool(delta_library().DeltaTable.is_deltatable(self._uri, storage_options=self._storage_options))

    def _table(self) -> Any:
        """Return the table in its newest version. Reads only what the log has got since the last time."""
        if self._kept is not None and self._stamp_now() == self._stamp:
            self._kept.update_incremental()
        else:  # not read yet, or removed and made anew, which an update does not see
            self._kept = delta_library().DeltaTable(self._uri, storage_options=self._storage_options)
        self._stamp = self._stamp_now()
        return self._kept

    def _stamp_now(self) -> tuple[Any, ...]:
        filesystem, folder = locate(self._uri)
        file = filesystem.get_file_info(f"{folder.rstrip('/')}/_delta_log/{self._kept.version():020}.json")
        return file.size, file.mtime_ns

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of the library into a SinkError."""
        try:
            yield
        except (delta_library().exceptions.DeltaError, OSError) as error:
            self._kept = None
            raise SinkError(
                f"{self._what}: {delta_error(error)}; check the path, the rights and the free space there"
            ) from error


def _action(columns: pa.Schema, file: dict[str, Any]) -> Any:
    """Return the action of the log that adds a file."""
    values = {}
    for part in file["path"].split("/")[:-1]:
        name, text = part.split("=", 1)
        kind = columns.field(unquote(name)).type
        values[unquote(name)] = None if text == NO_VALUE else _in_log(unquote(text), kind)
    add = import_module("deltalake.transaction").AddAction
    return add(file["path"], file["size"], values, int(time.time() * 1000), True, json.dumps(file["statistics"]))


def _in_log(text: str, kind: pa.DataType) -> str:
    """Return the text of a partition's value as Delta's log has it: times with a zone are in the form of ISO 8601."""
    return text.replace(" ", "T") if pa.types.is_timestamp(kind) and kind.tz else text


def _columns(table: Any) -> pa.Schema:
    """Return the columns of a table, as its files have them."""
    return pa.schema(table.schema().to_arrow())
