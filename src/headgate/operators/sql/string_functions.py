"""The functions of strings."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from headgate.operators.sql import string_kernels as kernels
from headgate.operators.sql.function_arguments import Arguments
from headgate.operators.sql.function_table import Function
from headgate.operators.sql.sql_eval import Literal, SqlNode

_INT = pa.int64()
_BOOL = pa.bool_()
_MOST_PADDING = 1_000


def _same(function: Callable[..., pa.Array]) -> Callable[[Arguments], SqlNode]:
    """Return the compiler of a function from a string to a string."""

    def build(arguments: Arguments) -> SqlNode:
        node = arguments.string(0)
        return arguments.apply(function, node.type, node)

    return build


def _trim(function: Callable[..., pa.Array]) -> Callable[[Arguments], SqlNode]:
    def build(arguments: Arguments) -> SqlNode:
        node = arguments.string(0)
        characters = arguments.text(1) if len(arguments) > 1 else " "
        return arguments.apply(partial(function, characters=characters), node.type, node) if characters else node

    return build


def _length(function: Callable[..., pa.Array]) -> Callable[[Arguments], SqlNode]:
    return lambda arguments: arguments.apply(function, _INT, arguments.string(0))


def _substring(arguments: Arguments) -> SqlNode:
    node = arguments.string(0)
    length = arguments.integer(2) if len(arguments) > 2 else Literal((1 << 31) - 1, _INT)
    return arguments.apply(kernels.substring, node.type, node, arguments.integer(1), length)


def _left(arguments: Arguments) -> SqlNode:
    node = arguments.string(0)
    return arguments.apply(kernels.substring, node.type, node, Literal(1, _INT), arguments.integer(1))


def _right(arguments: Arguments) -> SqlNode:
    node = arguments.string(0)
    return arguments.apply(kernels.right, node.type, node, arguments.integer(1))


def _pad(is_left: bool) -> Callable[[Arguments], SqlNode]:
    def build(arguments: Arguments) -> SqlNode:
        node, length = arguments.string(0), arguments.whole(1)
        padding = arguments.text(2) if len(arguments) > 2 else " "
        if length > _MOST_PADDING:
            arguments.refuse(1, f"the length {length} is more than {_MOST_PADDING}")
        return arguments.apply(partial(kernels.pad, length=length, padding=padding, is_left=is_left), node.type, node)

    return build


def _concat(arguments: Arguments) -> SqlNode:
    nodes = arguments.strings(0)
    return nodes[0] if len(nodes) == 1 else arguments.apply(kernels.concat, nodes[0].type, *nodes)


def _concat_with(arguments: Arguments) -> SqlNode:
    nodes = arguments.strings(0)
    return arguments.apply(kernels.concat_with, nodes[0].type, *nodes)


def _replace(arguments: Arguments) -> SqlNode:
    node, search = arguments.string(0), arguments.text(1)
    replacement = arguments.text(2) if len(arguments) > 2 else ""
    return arguments.apply(partial(kernels.replace, search=search, replacement=replacement), node.type, node)


def _split_part(arguments: Arguments) -> SqlNode:
    node, delimiter, number = arguments.string(0), arguments.text(1), arguments.whole(2)
    if number == 0:
        arguments.refuse(2, "parts are numbered from 1, or from -1 at the end; there is no part 0")
    return arguments.apply(partial(kernels.split_part, delimiter=delimiter, number=number), node.type, node)


def _repeat(arguments: Arguments) -> SqlNode:
    node = arguments.string(0)
    return arguments.apply(kernels.repeat, node.type, node, arguments.integer(1))


def _position(text_at: int) -> Callable[[Arguments], SqlNode]:
    def build(arguments: Arguments) -> SqlNode:
        wanted = arguments.text(text_at)
        return arguments.apply(partial(kernels.position, wanted=wanted), _INT, arguments.string(1 - text_at))

    return build


def _test(function: Callable[..., pa.Array]) -> Callable[[Arguments], SqlNode]:
    return lambda arguments: arguments.apply(partial(function, pattern=arguments.text(1)), _BOOL, arguments.string(0))


def _pattern(arguments: Arguments, index: int) -> str:
    """Return a regular expression that Arrow's library RE2 can compile."""
    pattern = arguments.text(index)
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
        return pattern
    except pa.ArrowInvalid as error:
        arguments.refuse(index, f"{pattern!r} is not a regular expression of RE2: {error}")


def _matches(arguments: Arguments) -> SqlNode:
    pattern = _pattern(arguments, 1)
    return arguments.apply(partial(pc.match_substring_regex, pattern=pattern), _BOOL, arguments.string(0))


def _extract(arguments: Arguments) -> SqlNode:
    node, pattern = arguments.string(0), _pattern(arguments, 1)
    group = arguments.whole(2) if len(arguments) > 2 else 1
    named, groups = kernels.named_groups(pattern)
    if not 0 <= group <= groups:
        arguments.refuse(2 if len(arguments) > 2 else 1, f"no group {group}: the pattern {pattern!r} has {groups}")
    return arguments.apply(partial(kernels.extract, pattern=named, group=group), node.type, node)


def _substitute(arguments: Arguments) -> SqlNode:
    node, pattern, replacement = arguments.string(0), _pattern(arguments, 1), arguments.text(2)
    # Java writes a group as $1, and RE2 as \1.
    replacement = re.sub(r"\\(.)|\$(\d)", _group, replacement)
    function = partial(pc.replace_substring_regex, pattern=pattern, replacement=replacement)
    return arguments.apply(function, node.type, node)


def _group(found: re.Match[str]) -> str:
    plain, group = found.groups()
    return f"\\{group}" if plain is None else "\\\\" if plain == "\\" else plain


STRING_FUNCTIONS = (
    Function("concat(a, b, ...)", "the strings joined, as a || b; null if one is null", _concat, 1, None),
    Function(
        "concat_ws(separator, a, ...)",
        "the strings that are not null, with the separator between",
        _concat_with,
        2,
        None,
    ),
    Function("upper(s)", "s in capital letters", _same(pc.utf8_upper), 1, 1, other_names=("ucase",)),
    Function("lower(s)", "s in small letters", _same(pc.utf8_lower), 1, 1, other_names=("lcase",)),
    Function(
        "length(s)",
        "the number of characters",
        _length(pc.utf8_length),
        1,
        1,
        other_names=("char_length", "character_length", "len"),
    ),
    Function("octet_length(s)", "the number of bytes in UTF-8", _length(pc.binary_length), 1, 1),
    Function("trim(s)", "s without spaces at both ends", _trim(pc.utf8_trim), 1, 1),
    Function("btrim(s[, characters])", "s without these characters at both ends", _trim(pc.utf8_trim), 1, 2),
    Function("ltrim(s)", "s without spaces at the beginning", _trim(pc.utf8_ltrim), 1, 1),
    Function("rtrim(s)", "s without spaces at the end", _trim(pc.utf8_rtrim), 1, 1),
    Function(
        "substring(s, start[, length])",
        "the characters from position start, counted from 1, or from -1 at the end",
        _substring,
        2,
        3,
        other_names=("substr",),
    ),
    Function("left(s, n)", "the first n characters", _left, 2, 2),
    Function("right(s, n)", "the last n characters", _right, 2, 2),
    Function("lpad(s, n[, padding])", "s with n characters, filled or cut; padding is at the left", _pad(True), 2, 3),
    Function("rpad(s, n[, padding])", "s with n characters; padding is at the right", _pad(False), 2, 3),
    Function("repeat(s, n)", "s n times", _repeat, 2, 2),
    Function("reverse(s)", "the characters in reverse order", _same(pc.utf8_reverse), 1, 1),
    Function("replace(s, search[, by])", "s with each search replaced by the string `by`", _replace, 2, 3),
    Function(
        "split_part(s, delimiter, n)",
        "part n of s, counted from 1, or from -1 at the end; '' if there is no such part",
        _split_part,
        3,
        3,
    ),
    Function("instr(s, text)", "the position of the text in s, or 0", _position(1), 2, 2),
    Function("locate(text, s)", "the same as instr(s, text)", _position(0), 2, 2),
    Function("startswith(s, text)", "whether s begins with the text", _test(pc.starts_with), 2, 2),
    Function("endswith(s, text)", "whether s ends with the text", _test(pc.ends_with), 2, 2),
    Function("contains(s, text)", "whether the text is in s", _test(pc.match_substring), 2, 2),
    Function(
        "regexp_like(s, pattern)",
        "whether the pattern is found in s, as s rlike pattern",
        _matches,
        2,
        2,
        other_names=("regexp",),
    ),
    Function(
        "regexp_extract(s, pattern[, group])",
        "a group of the first match, by default group 1; '' if nothing matches",
        _extract,
        2,
        3,
    ),
    Function(
        "regexp_replace(s, pattern, by)", "s with each match replaced; $1 in `by` is the first group", _substitute, 3, 3
    ),
)
