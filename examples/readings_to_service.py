"""Send the mean of every three readings of a gauge to an HTTP service, here one on this machine."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import headgate as hg


class Service(BaseHTTPRequestHandler):
    """Takes each request once. A sink may repeat a request, and then sends the same key again."""

    requests: ClassVar[dict[str, list[dict[str, object]]]] = {}

    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests[self.headers["Idempotency-Key"]] = rows
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def means(readings: hg.DataStream) -> hg.DataStream:
    return readings.key_by("gauge").window(hg.count_window(3)).aggregate(mean=hg.mean("metres"))


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    levels = {"weir": [1.0, 1.5, 2.0, 2.5, 2.0, 3.0], "lock": [3.0, 3.0, 4.5, 5.0]}  # the last of lock is incomplete
    readings = [{"gauge": gauge, "metres": level} for gauge, of_gauge in levels.items() for level in of_gauge]
    env = hg.StreamEnvironment()
    stream = means(env.from_source(hg.sources.iterable(readings)))
    stream.sink_to(hg.sinks.webhook(f"http://127.0.0.1:{server.server_port}/means", format="json"))
    env.execute()
    server.shutdown()
    server.server_close()

    sent = [(row["gauge"], row["mean"]) for rows in Service.requests.values() for row in rows]
    print(sorted(sent))
