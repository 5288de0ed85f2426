"""A request that cannot be answered."""

from __future__ import annotations


class Refusal(Exception):
    """Raised with the HTTP status and a message for the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
