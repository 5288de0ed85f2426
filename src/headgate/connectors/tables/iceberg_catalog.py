"""`IcebergCatalog`: the connection to a catalog, through the library pyiceberg."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from headgate.errors import ConfigError, HeadgateError
from headgate.filesystems import brief


def iceberg_library(module: str) -> Any:
    """Return a module of pyiceberg. Raises ConfigError if it is not installed."""
    try:
        return import_module(f"pyiceberg.{module}")
    except ImportError as error:
        raise ConfigError(f"Iceberg needs the package pyiceberg ({error}): pip install 'headgate[iceberg]'") from None


class IcebergCatalog:
    """A catalog of pyiceberg. It stays connected until an error, and a pickled copy connects anew.

    Errors are of the class `error`, and begin with `what`.
    """

    def __init__(self, name: str, options: Mapping[str, str], what: str, error: type[HeadgateError]) -> None:
        self._name = name
        self._options = dict(options)
        self._what = what
        self._error = error
        self._connected: Any = None

    def connected(self) -> Any:
        """Return the library's catalog. Connect if there is no connection."""
        if self._connected is None:
            self._connected = iceberg_library("catalog").load_catalog(self._name, **self._options)
        return self._connected

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn errors of the library into Headgate's, and connect anew after them."""
        try:
            yield
        except HeadgateError:
            raise
        except Exception as error:  # the library has many kinds, and catalogs add their own
            self._connected = None
            raise self._error(f"{self._what}: {type(error).__name__}: {brief(error)}") from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connected": None}
