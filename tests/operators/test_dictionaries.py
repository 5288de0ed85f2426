"""Expressions on texts with dictionaries have the values that they have on the texts themselves."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headgate.errors import DataError
from headgate.operators.sql import dictionaries
from headgate.operators.sql.dictionaries import TextExpressions
from headgate.operators.sql.expressions import compile_expression

WORDS = ["apple", None, "Pear", "", "a/b/c", "apple", "12", "Pear", None, "ä"]
PLAIN = pa.record_batch(
    {
        "s": pa.array(WORDS),
        "t": pa.array([*reversed(WORDS)]),
        "l": pa.array(WORDS, pa.large_string()),
        "b": pa.array([None if word is None else word.encode() for word in WORDS], pa.binary()),
        "n": pa.array(range(10)),
    }
)
EXPRESSIONS = (
    "s",
    "n + 1",
    "'x'",
    "upper(s)",
    "length(s) + n",
    "coalesce(s, 'none')",
    "s is null",
    "s = 'apple' or t = 'apple'",
    "s in ('apple', '12') and n > 3",
    "s like '%p%'",
    "concat(s, '-', t)",
    "concat(upper(s), lower(s), t)",
    "case lower(s) when 'apple' then '0' when 'pear' then '1' else concat(split_part(t, '/', 2), s) end",
    "case when n > 5 then split_part(s, '/', 1) end",
    "cast(s as bigint)",
    "upper(l)",
    "b is null or n > 3",
    "s < t",
)


def encoded(batch: pa.RecordBatch, *names: str) -> pa.RecordBatch:
    """Return the batch with dictionaries for these columns. They have a text that is in no row."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in names:
            texts = pa.concat_arrays(
                [pa.array(["99999999999999999999"]).cast(column.type), column.drop_null().unique()]
            )
            column = pa.DictionaryArray.from_arrays(pc.index_in(column, texts), texts)
        columns[name] = column
    return pa.RecordBatch.from_pydict(columns)


def values(texts: list[str], batch: pa.RecordBatch) -> list[pa.Array]:
    return TextExpressions([compile_expression(text, PLAIN.schema) for text in texts]).evaluate(batch)


@pytest.mark.parametrize("names", ["s", "t", "st", "stlb"])
@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_has_the_same_values(text: str, names: str) -> None:
    (expected,) = values([text], PLAIN)
    (found,) = values([text], encoded(PLAIN, *names))
    assert found.equals(expected)
    assert found.type == expected.type
    (of_slice,) = values([text], encoded(PLAIN, *names).slice(3, 4))
    assert of_slice.equals(expected.slice(3, 4))


def test_all_expressions_of_a_projection_are_evaluated_together() -> None:
    assert values([*EXPRESSIONS], encoded(PLAIN, "s", "t")) == values([*EXPRESSIONS], PLAIN)


def test_a_dictionary_is_evaluated_once_for_all_batches_that_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[int]()
    computed = dictionaries._Texts._compute

    def counting(part: dictionaries._Texts, texts: pa.Array) -> dict[str, pa.Array]:
        seen.append(len(texts))
        return computed(part, texts)

    monkeypatch.setattr(dictionaries._Texts, "_compute", counting)
    upper = TextExpressions([compile_expression("upper(s)", PLAIN.schema)])
    batch = encoded(PLAIN, "s")
    for start in range(0, 10, 2):
        assert upper.evaluate(batch.slice(start, 2))[0].equals(pc.utf8_upper(PLAIN["s"].slice(start, 2)))
    assert seen == [len(batch["s"].dictionary) + 1], "for each text, and for null"
    other = encoded(PLAIN.slice(4, 3), "s")
    assert upper.evaluate(other)[0].to_pylist() == ["A/B/C", "APPLE", "12"]
    assert len(seen) == 2


def test_a_dictionary_may_have_as_many_texts_as_its_small_numbers_allow() -> None:
    texts = pa.array([f"text {number}" for number in range(128)])
    column = pa.DictionaryArray.from_arrays(pa.array([127, None], pa.int8()), texts)
    batch = pa.RecordBatch.from_pydict({"s": column})
    assert values(["upper(s)", "coalesce(s, 'none')"], batch) == [
        pa.array(["TEXT 127", None]),
        pa.array(["text 127", "none"]),
    ]


def test_a_user_may_choose_any_names() -> None:
    batch = encoded(pa.record_batch({"s": WORDS, "__0": WORDS, "__1": WORDS}), "s")
    expressions = [compile_expression(text, pa.schema(dict.fromkeys(["s", "__0", "__1"], pa.string()))) for text in
                   ("upper(s)", "lower(s)", "concat(`__0`, `__1`, lower(s))")]  # fmt: skip
    found = TextExpressions(expressions).evaluate(batch)
    assert found[2].to_pylist()[:3] == ["appleappleapple", None, "PearPearpear"]


def test_a_text_that_no_row_has_is_no_error() -> None:
    texts = pa.array(["long " * 10, "short"])
    expression = "cast(9223372036854775800 as bigint) + length(s)"
    batch = pa.RecordBatch.from_pydict({"s": pa.DictionaryArray.from_arrays(pa.array([1, 1]), texts)})
    schema = pa.schema({"s": pa.string()})
    harmless = TextExpressions([compile_expression(expression, schema)])
    assert harmless.evaluate(batch)[0].to_pylist() == [9223372036854775805] * 2
    both = pa.RecordBatch.from_pydict({"s": pa.DictionaryArray.from_arrays(pa.array([1, 0]), texts)})
    with pytest.raises(DataError, match="leaves the range of 64 bits"):
        harmless.evaluate(both)
