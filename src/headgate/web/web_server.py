"""One HTTP server on its own thread.

The thread imports the server's libraries when the first connection comes. That takes some 0.2 s of processor time.
The tasks on the same cores keep it until somebody looks.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from typing import TYPE_CHECKING, Final

from headgate.transport.wake_up import WakeUp
from headgate.web.job_board import JobBoard

if TYPE_CHECKING:
    from headgate.web.http_server import HttpServer

log = logging.getLogger(__name__)
#: The seconds for which `stop` waits for the thread.
_STOP_TIMEOUT: Final = 5.0
#: The whole seconds for which the server waits for open event streams when it stops. Then it closes them. Since Python
#: 3.12 it would wait without end.
_STREAMS_END: Final = 1
#: The most connections at once.
_CONNECTIONS: Final = 100
#: The largest size of a request's head in bytes.
_HEAD: Final = 16 << 10


class WebServer:
    """The server. The constructor opens the port, so the address is known. The server answers only after `start`.

    The constructor raises OSError if it cannot open the port.
    """

    def __init__(self, board: JobBoard, host: str, port: int, token: str | None) -> None:
        self.host, self.token = host, token
        self._board = board
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host.strip("[]"), port), family=family)
        self.port: int = self._socket.getsockname()[1]
        self._wake_up = WakeUp()
        self._is_stopped = False
        self._server: HttpServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """The URL of the page, without a slash at the end."""
        name = socket.gethostname() if self.host in {"0.0.0.0", "::"} else self.host
        return f"http://{f'[{name}]' if ':' in name else name}:{self.port}"

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Serve from a daemon thread. Further calls do nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="headgate-web", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Close all connections and the socket, and wait for the thread."""
        self._is_stopped = True
        self._wake_up.set()
        if self._server is not None:
            self._server.end()
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT)
        self._socket.close()
        self._wake_up.close()

    def _run(self) -> None:
        """Wait for the first connection. Serve it, and those that come later."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._wake_up, selectors.EVENT_READ)
            selector.select()
        try:
            self._serve()
        except Exception as error:  # the page must not harm the jobs
            log.warning("the page %s is not served any more: %s: %s", self.address, type(error).__name__, error)

    def _serve(self) -> None:
        import asyncio

        import uvicorn

        from headgate.web.application import application
        from headgate.web.http_connection import HttpConnection
        from headgate.web.http_server import HttpServer

        config = uvicorn.Config(
            application(self._board, self.host, self.port, self.token),
            loop="asyncio",
            http=HttpConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS,
            h11_max_incomplete_event_size=_HEAD,
            timeout_graceful_shutdown=_STREAMS_END,
        )
        self._server = HttpServer(config)
        if not self._is_stopped:
            asyncio.run(self._server.serve(sockets=[self._socket]))
