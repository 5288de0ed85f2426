"""Count the clicks of each visit: a visit ends when a user does nothing for half an hour."""

import pyarrow as pa

import headgate as hg


def visits(clicks: hg.DataStream) -> hg.DataStream:
    return (
        clicks.key_by("user")
        .window(hg.session("30 min"))
        .aggregate(clicks=hg.count(), entry=hg.first("page"), exit=hg.last("page"))
    )


if __name__ == "__main__":
    rows = pa.table(
        {
            "user": ["ann", "bob", "ann", "ann", "bob", "ann"],
            "page": ["home", "home", "help", "news", "shop", "shop"],
            "at": pa.array([0, 300, 3000, 1500, 600, 9000], pa.timestamp("s", tz="UTC")),  # 1500 joins 0 and 3000
        }
    )
    env = hg.StreamEnvironment()
    source = hg.sources.iterable(rows.to_batches(max_chunksize=1))
    clicks = env.from_source(source, watermark=hg.Watermark("at", out_of_orderness="1 h"))
    for row in visits(clicks).collect().sort_by([("user", "ascending"), ("window_start", "ascending")]).to_pylist():
        times = f"{row['window_start']:%H:%M} to {row['window_end']:%H:%M}"
        print(f"{row['user']}  {times}  {row['clicks']} clicks, from {row['entry']} to {row['exit']}")
