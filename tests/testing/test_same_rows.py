"""`assert_same_rows`: compares rows and how often each occurs, in any order."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headgate.testing import assert_same_rows

NAN = float("nan")


def test_the_order_of_rows_and_columns_does_not_count() -> None:
    assert_same_rows([{"a": 1, "b": [1, 2]}, {"a": 2, "b": None}], [{"a": 2, "b": None}, {"b": [1, 2], "a": 1}])


def test_floats_that_agree_to_nine_digits_are_the_same() -> None:
    assert_same_rows([{"x": 0.1 + 0.2}, {"x": NAN}, {"x": -0.0}], [{"x": NAN}, {"x": 0.0}, {"x": 0.3}])
    with pytest.raises(AssertionError):
        assert_same_rows([{"x": 1.0}], [{"x": 1.0000001}])


def test_tables_can_be_compared() -> None:
    assert_same_rows(pa.table({"a": [1, 2]}), [{"a": 2}, {"a": 1}])


def test_the_difference_is_shown() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_same_rows([{"a": 1}, {"a": 2}, {"a": 2}, {"a": 2}], [{"a": 1}, {"a": 2}, {"a": 3}])
    assert str(caught.value) == "the rows differ\nmissing:\n  {'a': 3}\nunexpected:\n  {'a': 2}, 2 times"


def test_no_more_than_ten_rows_are_shown() -> None:
    with pytest.raises(AssertionError, match="  and 5 more\nunexpected:\n  none$"):
        assert_same_rows([], [{"a": n} for n in range(15)])


def test_lists_have_an_order() -> None:
    with pytest.raises(AssertionError):
        assert_same_rows([{"a": [1, 2]}], [{"a": [2, 1]}])
