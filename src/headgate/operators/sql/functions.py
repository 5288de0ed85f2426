"""`FUNCTIONS`: all functions of SQL strings, by name. The page "SQL strings" is written from this table."""

from __future__ import annotations

from headgate.operators.sql.choice_functions import CHOICE_FUNCTIONS
from headgate.operators.sql.function_table import Function
from headgate.operators.sql.number_functions import NUMBER_FUNCTIONS
from headgate.operators.sql.string_functions import STRING_FUNCTIONS
from headgate.operators.sql.time_functions import TIME_FUNCTIONS

#: The functions of each section of the page.
SECTIONS: dict[str, tuple[Function, ...]] = {
    "Choice and types": CHOICE_FUNCTIONS,
    "Numbers": NUMBER_FUNCTIONS,
    "Strings": STRING_FUNCTIONS,
    "Dates and times": TIME_FUNCTIONS,
}

FUNCTIONS: dict[str, Function] = {
    name: function for functions in SECTIONS.values() for function in functions for name in function.names
}
