"""Read the orders of a database, and write them to JSON files and to tables of Delta Lake and Iceberg. Other jobs read
the tables, and one of them adds to each order a column of the database.

It needs three libraries: pip install 'headgate[adbc,delta,iceberg]'.
"""

import tempfile
from pathlib import Path

from adbc_driver_sqlite import dbapi
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import headgate as hg

ORDERS = [(1, "Rome", 12.0), (2, "Oslo", 5.5), (3, "Rome", 3.0)]


def make_database(path: str) -> None:
    with dbapi.connect(path) as connection, connection.cursor() as cursor:
        cursor.execute("create table orders (id integer primary key, city text, euros real)")
        cursor.executemany("insert into orders values (?, ?, ?)", ORDERS)
        cursor.execute("create table totals (city text primary key, euros real)")
        connection.commit()


def totals(path: str) -> list[tuple[str, float]]:
    with dbapi.connect(path) as connection, connection.cursor() as cursor:
        cursor.execute("select city, euros from totals order by city")
        return [(city, euros) for city, euros in cursor.fetchall()]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        database, delta = f"{folder}/shop.db", f"{folder}/lake/orders"
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        make_database(database)
        load_catalog("main", **catalog).create_namespace("lake")

        env = hg.StreamEnvironment()
        orders = env.from_source(hg.sources.adbc("sqlite", database, "orders", by="id", bounded=True))
        orders.sink_to(hg.sinks.json(f"{folder}/json"))
        orders.sink_to(hg.sinks.delta(delta, partition_by="city"))
        orders.sink_to(hg.sinks.iceberg("lake.orders", "main", options=catalog))
        by_city = orders.key_by("city").aggregate(euros=hg.sum("euros"))
        by_city.sink_to(hg.sinks.adbc("sqlite", database, "totals", mode="upsert", key="city"))
        env.execute()

        lines = sum(len(path.read_text().splitlines()) for path in Path(folder, "json").glob("*.json*"))
        env = hg.StreamEnvironment()
        iceberg = env.from_source(hg.sources.iceberg("lake.orders", "main", options=catalog, bounded=True)).collect()
        print(f"{lines} lines of JSON, {DeltaTable(delta).to_pyarrow_table().num_rows} rows in Delta, ", end="")
        print(f"{iceberg.num_rows} in Iceberg; totals: {totals(database)}")

        env = hg.StreamEnvironment()
        of_city = hg.lookups.adbc("sqlite", database, "select city, euros as total from totals")
        shares = env.from_source(hg.sources.delta(delta, bounded=True)).lookup(of_city, on="city")
        percent = shares.select("id", percent="100 * euros / total").collect()
        print(sorted(percent.to_pylist(), key=lambda row: row["id"]))
