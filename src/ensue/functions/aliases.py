"""Hints for functions of other systems that Ensue does not have."""

from collections.abc import Iterable
from difflib import get_close_matches

_CLOCK = (
    "a query gives the same matches whenever it runs, so it has no clock: compare with the time "
    "of an event, or pass the time as a parameter, :now"
)
_CHANCE = "a query gives the same matches each time it runs, so nothing in it is random"
_TEXTS = "join texts with ||, or with concat and to_string"
_LISTS = "a[].price is the list of all, in RETURN"

FUNCTION_HINTS = {
    **dict.fromkeys(
        ("now", "current_timestamp", "current_date", "current_time", "today", "getdate", "sysdate",
         "localtimestamp", "localtime", "curdate", "utc_timestamp", "get_current_timestamp"),
        _CLOCK,
    ),
    **dict.fromkeys(("rand", "random", "randn", "uuid", "gen_random_uuid", "newid"), _CHANCE),
    **dict.fromkeys(("format", "printf", "format_string"), _TEXTS),
    **dict.fromkeys(("array_agg", "collect_list", "collect_set", "list", "array"), _LISTS),
    "weekday": "weekday is 0 on Sundays for some and on Mondays for others: dayofweek is 0 on "
    "Sundays, isodow 1 on Mondays",
    **dict.fromkeys(
        ("date_format", "to_char", "format_datetime", "formatdatetime", "strformat"),
        "strftime(a.time, '%Y-%m-%d') writes times",
    ),
    **dict.fromkeys(("parse_timestamp", "str_to_date"), "strptime(a.x, '%d/%m/%Y') reads times"),
    **dict.fromkeys(
        ("timestampdiff", "months_between", "age"),
        "date_diff('hour', t, u) counts units, and u - t is a length of time",
    ),
    **dict.fromkeys(("lag", "prev", "previous"), "a[i-1].price is that of the event before"),
    **dict.fromkeys(("lead", "next"), "name the event that follows in the pattern: SEQ(A a, B b)"),
    **dict.fromkeys(
        ("row_number", "rank", "dense_rank", "ntile"),
        "window functions are not supported here; a[1], a[2], ... are events by their numbers",
    ),
    **dict.fromkeys(
        ("size", "cardinality", "array_length", "list_length"),
        "count(a), or a.LEN, is the number of events",
    ),
    **dict.fromkeys(
        ("max_by", "min_by", "arg_max", "arg_min", "argmax", "argmin"),
        "name the event and say in WHERE which one it is: b.volume >= max(a.volume)",
    ),
    **dict.fromkeys(
        ("int", "float", "str", "string", "bool", "convert", "parse_int", "tointeger", "number"),
        "CAST(x AS int), CAST(x AS double), CAST(x AS varchar) convert",
    ),
    **dict.fromkeys(
        ("get_json_object", "json_extract", "json_value", "from_json", "struct_extract"),
        "extract the field before the call: a query only sees columns of the events",
    ),
    **dict.fromkeys(("isin", "is_in", "in_list"), "a.kind IN ('x', 'y')"),
    **dict.fromkeys(("indexof", "index_of", "find"), "did you mean 'position'?"),
    **dict.fromkeys(("sha2", "sha"), "did you mean 'sha256'?"),
    **dict.fromkeys(("strlen", "size_of", "length_b"), "did you mean 'length'?"),
    **dict.fromkeys(("strreplace", "str_replace", "replaceall"), "did you mean 'replace'?"),
    **dict.fromkeys(("regex", "regex_match", "regexp_match", "match", "matches"),
                    "did you mean 'regexp_matches'?"),
    **dict.fromkeys(("mean_abs", "average"), "did you mean 'avg'?"),
    "total": "did you mean 'sum'?",
    "minimum": "did you mean 'min'?",
    "maximum": "did you mean 'max'?",
    "std_dev": "did you mean 'stddev'?",
    "hash": "md5(x) and sha256(x) are the same everywhere",
    "exists": "say with ! what must not occur: SEQ(A a, !B b, C c)",
    "hypotenuse": "did you mean 'hypot'?",
    "within": "WITHIN 5 minutes follows the conditions",
    "abs_diff": "abs(x - y)",
}  # fmt: skip


def suggest_function(written: str, known: Iterable[str]) -> str | None:
    """Suggests a replacement for an unknown function; None if no name is similar.

    >>> suggest_function("average", ["avg"]), suggest_function("sqrrt", ["sqrt"])
    ("did you mean 'avg'?", "did you mean 'sqrt'?")
    """
    name = written.lower()
    if name in FUNCTION_HINTS:
        return FUNCTION_HINTS[name]
    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    if near:
        return f"did you mean '{near[0]}'?"
    similar = get_close_matches(name, list(FUNCTION_HINTS), n=1, cutoff=0.8)
    return FUNCTION_HINTS[similar[0]] if similar else None
