"""A source of the lines of text files."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headgate.connectors.data_file import DataFile
from headgate.connectors.file_sources.line_parser import LineParser
from headgate.connectors.file_sources.line_source import LineSource
from headgate.connectors.file_sources.paths import Paths

#: The schema of the source, which is the same as in Spark's text source.
TEXT = pa.schema([pa.field("value", pa.string(), nullable=False)])


class TextParser(LineParser):
    """A parser that makes one row of each line, without the line's end (\\n or \\r\\n). A blank line is a row too."""

    schema = TEXT

    def _parse(self, lines: bytes) -> pa.RecordBatch:
        try:
            text = lines.decode().removesuffix("\n")
        except UnicodeDecodeError as error:
            raise pa.ArrowInvalid(f"it is not UTF-8: {error.reason}") from None
        values = pc.split_pattern(pa.array([text]), "\n").flatten()
        if "\r" in text:
            values = pc.replace_substring_regex(values, r"\r$", "")
        return pa.RecordBatch.from_arrays([values], schema=TEXT)


class TextSource(LineSource):
    """A source of the lines of files; see `hg.sources.text`."""

    remedy = "convert the file to UTF-8"

    def __init__(self, paths: Paths, *, split_size: int | str) -> None:
        super().__init__(paths, split_size)
        self.schema = TEXT

    def parser(self, file: DataFile) -> TextParser:
        return TextParser()
