"""The sink into an Iceberg table, through the library pyiceberg.

The table's property `headgate.RUN` has the epoch of the owner, and for each program its last checkpoint in the table.
The commit that adds the files changes this property too. An owner that resumes also adds an empty snapshot: Iceberg
then refuses a commit of an older program, because such a commit builds on an earlier snapshot.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa

from headgate.connectors.tables.iceberg_catalog import IcebergCatalog, iceberg_library
from headgate.connectors.tables.iceberg_files import data_file, numbered_columns
from headgate.connectors.tables.iceberg_partitions import partition_names, partitions_of
from headgate.connectors.tables.table_columns import NewColumns, check_columns, paths_of, table_columns
from headgate.connectors.tables.table_sink import ATTEMPTS, Epoch, TableMode, TableSink
from headgate.errors import PlanError, SinkError, Superseded

#: How often the library repeats a commit: never, because a repetition could add an epoch that is there already.
_RETRIES: Final = "commit.retry.num-retries"
#: The property that says which names of columns in files belong to which columns of the table.
_NAMES: Final = "schema.name-mapping.default"
_SCHEME: Final = re.compile("[a-z][a-z0-9]*:/")
#: How Spark and Hadoop may name folders in a catalog, and how Arrow names them.
_OTHER_NAMES: Final = ((re.compile("file:/+"), "/"), (re.compile("s3[an]://"), "s3://"))


class IcebergSink(TableSink):
    """A sink into an Iceberg table; see `hg.sinks.iceberg`."""

    widens = True

    def __init__(self, table: str, catalog: str, *, mode: TableMode, new_columns: NewColumns,
                 options: Mapping[str, str], file_bytes: int) -> None:  # fmt: skip
        iceberg_library("catalog")
        super().__init__(f"iceberg: {catalog}.{table}", mode, new_columns, file_bytes)
        self._name = table
        #: The folder of the data files, as the catalog names it.
        self._location = ""
        self._catalog = IcebergCatalog(catalog, options, self._what, SinkError)

    def check(self, schema: pa.Schema) -> None:
        """Check that the table takes the rows, or if there is no table, that its namespace exists."""
        with self._catalog.errors():
            catalog = self._catalog.connected()
            if catalog.table_exists(self._name):
                self._check_table(catalog.load_table(self._name), schema)
                return
            self.check_place(as_arrow_names_it(catalog.properties.get("warehouse", "")))
            if not catalog.namespace_exists(namespace := self._name.rpartition(".")[0]):
                raise SinkError(f"{self._what}: there is no namespace {namespace!r} in the catalog; create it")

    def has_files(self) -> bool:
        """Return whether there is a table, and its newest snapshot has files."""
        with self._catalog.errors():
            catalog = self._catalog.connected()
            return catalog.table_exists(self._name) and any(catalog.load_table(self._name).scan().plan_files())

    def opened(self, schema: pa.Schema) -> tuple[str, pa.Schema, Sequence[str]]:
        """Create the table if it is not there. Add new columns if the user wants that."""
        with self._catalog.errors():
            catalog = self._catalog.connected()
            table = catalog.create_table_if_not_exists(self._name, table_columns(schema))
            if added := list(self._check_table(table, schema)):
                with table.update_schema() as update:
                    update.union_by_name(pa.schema(added))
                table = catalog.load_table(self._name)
            self._location = _data_folder(table)
            self._partitions = partitions_of(self._what, table, numbered_columns(table))
            return as_arrow_names_it(self._location), numbered_columns(table), ()

    def fence(self, epoch: Epoch) -> None:
        """Add an empty snapshot, with the owner."""
        self._commit(epoch, [])

    def add(self, epoch: Epoch, files: Sequence[dict[str, Any]]) -> None:
        """Add the files, unless the table has the epoch."""
        self._commit(epoch, files)

    def _commit(self, epoch: Epoch, files: Sequence[dict[str, Any]]) -> None:
        failed = iceberg_library("exceptions").CommitFailedException
        for _ in range(ATTEMPTS):
            with self._catalog.errors():
                table = self._catalog.connected().load_table(self._name)
                before = json.loads(table.properties.get(f"headgate.{epoch.run}", "{}"))
                if before.get("owner", 0) > epoch.owner:
                    raise Superseded(f"{self._what}: another program has taken over the results of run {epoch.run}")
                if files and before.get("commits", {}).get(epoch.taken_by, -1) >= epoch.checkpoint:
                    return
                try:
                    return self._commit_once(table, before, epoch, files)
                except failed as error:  # look again: who was faster?
                    failure = error
        raise SinkError(f"{self._what}: other writers were faster {ATTEMPTS} times: {failure}")

    def _commit_once(self, table: Any, before: dict[str, Any], epoch: Epoch, files: Sequence[dict[str, Any]]) -> None:
        after = {**before, "owner": epoch.owner}
        if files:
            after["commits"] = {**before.get("commits", {}), epoch.taken_by: epoch.checkpoint}
        self.check_files(files, numbered_columns(table), partition_names(table))
        table.metadata.properties[_RETRIES] = "0"  # only in this copy of the table
        with table.transaction() as transaction:
            transaction.set_properties({f"headgate.{epoch.run}": json.dumps(after)})
            if transaction.table_metadata.name_mapping() is None:  # files of earlier versions lack numbers of columns
                mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
                transaction.set_properties({_NAMES: mapping})
            with transaction.update_snapshot().fast_append() as append:
                for file in self._data_files(table, transaction.table_metadata, files):
                    append.append_data_file(file)

    def _data_files(self, table: Any, metadata: Any, files: Sequence[dict[str, Any]]) -> Iterator[Any]:
        """Describe the files to the library, several at a time, because it reads the footer of each."""
        root = self._location if _SCHEME.match(self._location) else f"file://{self._location}"
        executor = iceberg_library("utils.concurrent").ExecutorFactory.get_or_create()
        paths = [file["path"] for file in files]
        uris = [posixpath.join(root, path) for path in paths]
        yield from executor.map(partial(data_file, table, metadata), paths, uris)

    def _check_table(self, table: Any, schema: pa.Schema) -> pa.Schema:
        self.check_place(as_arrow_names_it(_data_folder(table)))
        columns = table.schema().as_arrow()
        for path, type_ in (found for column in columns for found in paths_of(column.name, column.type)):
            if pa.types.is_timestamp(type_) and type_.unit == "ns":
                raise PlanError(
                    f"{self._what}: the table's column {path!r} has nanoseconds, and the sink writes times in "
                    "microseconds; write to another table, with the type timestamp or timestamptz"
                )
        added = check_columns(self._what, schema, numbered_columns(table), self._new_columns)
        partitions_of(self._what, table, numbered_columns(table))
        return added


def _data_folder(table: Any) -> str:
    folder: str = table.properties.get("write.data.path", f"{table.location().rstrip('/')}/data")
    return folder


def as_arrow_names_it(location: str) -> str:
    """Return the path or URI that Arrow has for the location of a table in a catalog.

    >>> as_arrow_names_it("file:/lake/trips"), as_arrow_names_it("s3a://lake/trips")
    ('/lake/trips', 's3://lake/trips')
    """
    for other, name in _OTHER_NAMES:
        location = other.sub(name, location, count=1) if other.match(location) else location
    return location
