"""Who holds the locks for which a job waited in vain. Only for PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from headgate.connectors.adbc.database import DatabaseConnection

#: Locks that other sessions hold on a table. Those that let other programs write are listed last, because a statement
#: waits for them only if both change the same row.
_HOLDERS: Final = """
select a.pid, cast(a.usename as text), a.application_name, coalesce(a.state, ''),
    coalesce(cast(extract(epoch from now() - a.xact_start) as bigint), 0),
    bool_or(l.mode not in ('RowShareLock', 'RowExclusiveLock')) as is_strong
from pg_locks as l join pg_stat_activity as a on a.pid = l.pid
where l.granted and l.pid <> pg_backend_pid() and l.mode <> 'AccessShareLock'
    and l.database = (select oid from pg_database where datname = current_database())
    and l.relation in (cast(to_regclass($1) as oid), cast(to_regclass($2) as oid))
group by 1, 2, 3, 4, 5 order by is_strong desc, 5 desc
"""
#: The most sessions that an error names.
_MOST_NAMED: Final = 3


def lock_holders(connection: DatabaseConnection, table: str, other: str) -> str:
    """Name the sessions that hold locks on one of two tables, and say what to do. The names are SQL."""
    found = connection.execute(_HOLDERS, table, other)
    if not found:
        return "another session has held a lock; see pg_locks, and let it end its transaction"
    strong = [row for row in found if row[-1]] or found
    named = "; ".join(map(_in_words, strong[:_MOST_NAMED]))
    more = f"; and {len(strong) - _MOST_NAMED} more" if len(strong) > _MOST_NAMED else ""
    return f"a lock is held by {named}{more}. Let it end its transaction, or end it: select pg_terminate_backend(pid)"


def _in_words(row: Sequence[Any]) -> str:
    pid, user, application, state, seconds = row[:5]
    with_name = f" with {application}" if application else ""
    return f"session {pid} of {user}{with_name}" + (f" ({state}, for {seconds} s)" if state else "")
