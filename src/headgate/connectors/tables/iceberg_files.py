"""Describes the data files of a commit to the library pyiceberg."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from headgate.connectors.file_sinks.partition_by import NO_VALUE
from headgate.connectors.tables.iceberg_catalog import iceberg_library
from headgate.connectors.tables.table_columns import table_columns


def numbered_columns(table: Any) -> pa.Schema:
    """Return the columns of a table as its files have them, with their numbers, by which readers find them."""
    columns = table.schema().as_arrow()
    plain = {column.name: column for column in table_columns(columns)}
    return pa.schema(
        [
            column if pa.types.is_fixed_size_binary(column.type) else plain[column.name].with_metadata(column.metadata)
            for column in columns
        ]
    )


def data_file(table: Any, metadata: Any, path: str, uri: str) -> Any:
    """Return the library's description of a file. `path` is the file's path below the table's data folder, and
    `metadata` is the table's metadata in the transaction.

    The values of the partition come from the name of the file's folder. The library alone would take them from the
    file's statistics, which some tables do not have.
    """
    given = dict(part.split("=", 1) for part in path.split("/")[:-1])
    texts = {unquote(name): None if value == NO_VALUE else unquote(value) for name, value in given.items()}
    made = iceberg_library("io.pyarrow").parquet_file_to_data_file(table.io, _without_partitions(metadata), uri)
    made.spec_id = metadata.default_spec_id
    values = [_value(field, metadata.schema(), texts.get(field.name)) for field in metadata.spec().fields]
    manifest = iceberg_library("manifest")
    names = [field.name for field in manifest.DATA_FILE_TYPE[manifest.DEFAULT_READ_VERSION].fields]
    made[names.index("partition")] = iceberg_library("typedef").Record(*values)
    return made


def _without_partitions(metadata: Any) -> Any:
    """Return a copy without partition fields, so that the library does not look for their values in statistics."""
    spec = iceberg_library("partitioning").PartitionSpec(spec_id=metadata.default_spec_id)
    return metadata.model_copy(update={"partition_specs": [spec]})


def _value(field: Any, schema: Any, text: str | None) -> Any:
    """Return a partition's value as the library stores it."""
    if text is None or str(field.transform) == "void":
        return None
    if str(field.transform) != "identity":
        return int(text)
    type_ = schema.as_arrow().field(schema.find_column_name(field.source_id)).type
    value = pa.array([text]).cast(type_)[0].as_py()
    return iceberg_library("partitioning").partition_record_value(field, value, schema)
