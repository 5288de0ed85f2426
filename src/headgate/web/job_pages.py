"""The server of this process and the jobs that it shows. The runtime calls it; nothing here can fail a job."""

from __future__ import annotations

import atexit
import logging
import os
import threading

from headgate.config import Config
from headgate.web.job_board import JobBoard
from headgate.web.job_view import JobView
from headgate.web.web_server import WebServer

log = logging.getLogger(__name__)
#: "off" turns all pages off.
SWITCH = "HEADGATE_WEB"


class JobPages:
    """The pages of all jobs of a process, behind one server. Any thread may use it; the lock protects the server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.board = JobBoard()
        self._server: WebServer | None = None
        self._process = 0

    def add(self, job: JobView, config: Config) -> str | None:
        """Show a job. Returns the address of its page, or None if the job has no page.

        The first job opens the port. Nothing is served before `serve`.
        """
        if config.web_port is None or os.environ.get(SWITCH) == "off":
            return None
        with self._lock:
            server = self._server_for(f"job {job.name!r}", config)
        if server is None:
            return None
        self.board.add(job)
        return f"{server.address}/#{job.id}"

    def show_report(self, report: str) -> str | None:
        """Show an HTML file beside the jobs, instead of an earlier one. Returns its address.

        Returns None if all pages are off. Like a job's page, it is served from `serve` on.
        """
        if os.environ.get(SWITCH) == "off":
            return None
        with self._lock:
            server = self._server_for("the report", Config())
        if server is None:
            return None
        self.board.report = report.encode()
        return f"{server.address}/report"

    def remove(self, job: JobView) -> None:
        """Stop showing a job that could not start."""
        self.board.remove(job)

    def ended(self) -> None:
        """Forget the oldest ended jobs if there are too many, or if they take too much memory."""
        self.board.jobs()

    def _server_for(self, what: str, config: Config) -> WebServer | None:
        if self._process != os.getpid():  # a fork: the server is that of the parent
            self._server, self._process, self.board = None, os.getpid(), JobBoard()
        if self._server is None:
            self._server = self._opened(what, config)
        elif not self._suits(self._server, what, config):
            return None
        return self._server

    def _opened(self, what: str, config: Config) -> WebServer | None:
        try:
            return WebServer(self.board, config.web_host, config.web_port or 0, config.web_token)
        except OSError as error:
            log.warning(
                "%s has no page: the driver cannot listen on %s, port %s: %s; choose another web_port, or 0",
                what, config.web_host, config.web_port, _reason(error),
            )  # fmt: skip
            return None

    def _suits(self, server: WebServer, what: str, config: Config) -> bool:
        """Return whether a running server may show a job. A server without the job's token may not show the job."""
        if config.web_token not in {None, server.token}:
            log.warning("%s has no page: this program's page, %s, has another web_token", what, server.address)
            return False
        if config.web_port not in {0, server.port} or config.web_host not in {"127.0.0.1", server.host}:
            log.warning("%s is shown at %s, where this program's page is already", what, server.address)
        return True

    def serve(self) -> None:
        """Start to serve the pages. The driver calls this when tasks run. Further calls do nothing."""
        with self._lock:
            if self._server is not None and self._process == os.getpid():
                self._server.start()

    def close(self) -> None:
        """Stop the server and forget all jobs."""
        with self._lock:
            server, self._server = self._server, None
            if server is not None and self._process == os.getpid():
                server.stop()
            self.board.clear()


def _reason(error: OSError) -> str:
    return str(error) if error.errno is None else os.strerror(error.errno)


pages = JobPages()
atexit.register(pages.close)
