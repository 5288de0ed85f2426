"""Start a job without end, which reads lines from a TCP server. Continue beside it, and cancel it later."""

import socket
import threading

import pyarrow as pa

import headgate as hg


def serve(listener: socket.socket) -> None:
    """Send two lines to the first client, and keep the connection open."""
    connection, _ = listener.accept()
    with connection:
        connection.sendall(b"the gate is open\nthe canal is full\n")
        connection.recv(1)  # until the other end closes


server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=serve, args=(server,)).start()

# In threads: `take` changes variables of this program. In processes, the default, it would change copies of them.
env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
lines = env.from_source(hg.sources.socket_lines("127.0.0.1", server.getsockname()[1]))
both = threading.Event()
seen: list[str] = []


def take(batch: pa.RecordBatch, _info: object) -> None:
    seen.extend(batch["value"].to_pylist())
    if len(seen) == 2:
        both.set()


lines.sink_to(hg.sinks.for_each_batch(take))
job = env.execute_async("lines")  # returns at once; env.execute() would wait for the end, which never comes
both.wait()
print(job.status(), seen)
job.cancel()  # returns when all tasks have ended
try:
    job.wait()
except hg.JobCancelled as cancelled:
    print(f"{job.status()}: {cancelled}")
server.close()
