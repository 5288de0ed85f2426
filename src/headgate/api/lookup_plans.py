"""Plans `lookup`: checks its arguments, and chooses the operator for a table or a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from headgate.api.checks import as_columns, check_columns, check_names
from headgate.api.job_builder import JobBuilder
from headgate.errors import ConfigError, PlanError
from headgate.operators.asked_table import AskedTable
from headgate.operators.lookup import Lookup, lookup_schema
from headgate.operators.lookup_calls import CallLimits
from headgate.operators.lookup_function import FunctionLookup, function_lookup_schema
from headgate.operators.lookup_source import InMemoryTable, TableSource, lookup_source
from headgate.operators.operator import OperatorFactory, check_function
from headgate.quantities import duration_text, microseconds, seconds
from headgate.records.arrow import plain_type


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionOptions:
    """The arguments of `lookup` that are only for functions and databases. None means the default."""

    schema: pa.Schema | None = None
    cache_rows: int | None = None
    cache_ttl: object = None
    concurrency: int | None = None
    timeout: object = None
    retries: int | None = None
    batch_keys: int | None = None

    def limits(self) -> CallLimits:
        timeout = _duration("timeout", "30 s" if self.timeout is None else self.timeout, seconds)
        return CallLimits(
            batch_keys=_count("batch_keys", self.batch_keys, 1000, 1),
            concurrency=_count("concurrency", self.concurrency, 4, 1),
            timeout=timeout,
            retries=_count("retries", self.retries, 2, 0),
        )


@dataclass(frozen=True, slots=True)
class LookupPlan:
    """The operator of a lookup, the schema of its output, and what the plan says about it."""

    operator: OperatorFactory
    schema: pa.Schema
    shown: str


def plan_lookup(
    jobs: JobBuilder,
    table: Any,
    on: str | Sequence[str],
    *,
    how: str,
    columns: Sequence[str] | None,
    suffix: str | None,
    refresh: object,
    options: FunctionOptions,
    shown: pa.Schema,
    input_schema: pa.Schema,
) -> LookupPlan:
    """Return the plan of a lookup. Raises PlanError for arguments that do not fit. `shown` is `input_schema` without
    the hidden column."""
    keys = check_columns("lookup", as_columns("lookup: on", on), shown)
    if suffix is not None and not isinstance(suffix, str):
        raise PlanError(f"lookup: suffix={suffix!r} must be a string")
    if isinstance(table, AskedTable):
        if columns is not None or refresh is not None:
            raise PlanError("lookup: a database has no columns= and refresh=; it has schema= and cache_ttl=")
        asked = pa.schema([pa.field(name, plain_type(input_schema.field(name).type)) for name in keys])
        options = replace(options, schema=table.columns(asked, options.schema))
        return _of_function(table, tuple(keys), how=how, suffix=suffix, options=options, input_schema=input_schema)
    if callable(table) and not isinstance(table, TableSource):
        if columns is not None or refresh is not None:
            raise PlanError("lookup: columns= and refresh= are for tables; a function has schema= and cache_ttl=")
        return _of_function(table, tuple(keys), how=how, suffix=suffix, options=options, input_schema=input_schema)
    given = [name for name in FunctionOptions.__slots__ if getattr(options, name) is not None]
    if given:
        raise PlanError(f"lookup: {given[0]}= is for a function, and this is a {type(table).__name__}")
    source = lookup_source(jobs.readable(table))
    return _of_table(source, keys, how=how, columns=columns, suffix=suffix, refresh=refresh, input_schema=input_schema)


def _of_table(
    source: TableSource,
    on: Sequence[str],
    *,
    how: str,
    columns: Sequence[str] | None,
    suffix: str | None,
    refresh: object,
    input_schema: pa.Schema,
) -> LookupPlan:
    check_names("lookup", source.schema.names)
    wanted = None if columns is None else as_columns("lookup: columns", columns)
    period = None if refresh is None else _duration("refresh", refresh, microseconds)
    if period is not None and isinstance(source, InMemoryTable):
        raise PlanError("lookup: refresh= needs the path of a file; a table in memory does not change")
    arguments = {"how": how, "columns": wanted, "suffix": suffix, "input_schema": input_schema}
    schema = lookup_schema(source, on, **arguments)
    operator = partial(Lookup, source, on, **arguments, refresh=period)
    return LookupPlan(operator, schema, _shown(on, how, "refresh", period))


def _of_function(
    function: Callable[..., Any] | AskedTable,
    on: tuple[str, ...],
    *,
    how: str,
    suffix: str | None,
    options: FunctionOptions,
    input_schema: pa.Schema,
) -> LookupPlan:
    if not isinstance(function, AskedTable):
        check_function("lookup", function)
    if not isinstance(options.schema, pa.Schema):
        raise PlanError(
            "lookup: a function needs schema=, the pyarrow schema of the columns that it adds, without those of on="
        )
    check_names("lookup", options.schema.names)
    schema, _ = function_lookup_schema(on, options.schema, how=how, suffix=suffix, input_schema=input_schema)
    ttl = None if options.cache_ttl is None else _duration("cache_ttl", options.cache_ttl, microseconds)
    operator = partial(
        FunctionLookup,
        function,
        on,
        schema=options.schema,
        how=how,
        suffix=suffix,
        limits=options.limits(),
        cache_rows=_count("cache_rows", options.cache_rows, 100_000, 0),
        ttl=ttl,
        input_schema=input_schema,
    )
    return LookupPlan(operator, schema, _shown(on, how, "cache_ttl", ttl))


def _shown(on: Sequence[str], how: str, name: str, period: int | None) -> str:
    """Return what the plan says about a lookup. `period` is in microseconds."""
    return f"{how}, by {', '.join(on)}" + ("" if period is None else f", {name} {duration_text(period)}")


def _count(name: str, value: object, default: int, least: int) -> int:
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise PlanError(f"lookup: {name}={value!r} must be an integer of at least {least}")
    return value


def _duration(name: str, value: object, convert: Callable[[object], Any]) -> Any:
    try:
        number = convert(value)
    except ConfigError as error:
        raise PlanError(f"lookup: {name}: {error.message}") from None
    if number <= 0:
        raise PlanError(f"lookup: {name}={value!r} must be more than 0")
    return number
