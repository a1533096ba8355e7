"""The rules for SQL in requests, judged from its syntax tree before any catalog reads it.

The parser is that of DataFusion, with which Lance parses it. What is not in the lists here is
refused: a part of SQL that Lance has, but no rule knows, could take any time and memory. The rules
hold for the catalogs of all libraries, which do not check what a plan would take.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sqloxide
from lance_namespace.errors import InvalidInputError
from pydantic import BaseModel

from lance_bridge.dataset import require_sound
from lance_bridge.errors import invalid
from lance_bridge.lance_texts import describe_syntax

MAX_DEPTH = 200
"""How deep the tree of an expression may be, but for ``and`` and ``or``."""
MAX_CONDITIONS = 5000
"""How many conditions ``and`` and ``or`` may join."""
MAX_WORDS = 40_000
"""How many words and signs an expression may have, but for long lists of values."""
MAX_TEXT = 8192
"""How many characters a text may have that a function or an operator takes for each row."""
MAX_SHORT_TEXT = 1000
"""The same for functions whose time is the product of two lengths."""
MAX_FIXED_SIZE = 8192
"""How many values a fixed-size type may have in a cast: each null takes that space too."""

_FIELDS = {
    "column_aliases", "computed", "expression", "filter", "predicate", "updates",
    "when_matched_update_all_filt", "when_not_matched_by_source_delete_filt", "where",
}  # fmt: skip
"""Fields of requests that contain SQL: a string, or strings in a list or a map."""

# -- functions -------------------------------------------------------------------------------------

_SHORT = frozenset({"levenshtein"})
"""Functions whose time is the product of the lengths of two arguments."""

MAX_GROWTH = 100
"""How many times as long as their arguments results of the next functions may be, in each other."""

_Literals = Sequence[str | None]
"""A call's arguments: None for one that is not a literal, and an empty text for one too many."""


def _size(literal: str | None) -> float:
    return math.inf if literal is None else len(literal.encode())


def _number(literal: str | None) -> float:
    return float(literal) if literal and literal.isdecimal() else math.inf


def _growth_of_replace(literals: _Literals) -> float:
    old, new = _size(literals[1]), _size(literals[2])
    return 1 + new if old in (0, math.inf) else max(1, new / old)


def _growth_of_pad(literals: _Literals) -> float:
    return 1 if _number(literals[1]) * max(1, _size(literals[2])) <= MAX_TEXT else math.inf


def _growth_of_join(literals: _Literals) -> float:
    return 1 + _size(literals[1]) + _size(literals[2])


def _growth_of_third(literals: _Literals) -> float:
    return 1 + _size(literals[2])


def _growth_of_count(literals: _Literals) -> float:
    return max(1, _number(literals[1]))


def _growth_of_range(literals: _Literals) -> float:
    return max(_number(literals[0]), _number(literals[1] or literals[0]), 1)


GROWING: Mapping[str, Callable[[_Literals], float]] = {
    "concat_ws": lambda literals: 1 + _size(literals[0]),
    "encode": lambda _: 2,
    "generate_series": _growth_of_range,
    "lpad": _growth_of_pad,
    "range": _growth_of_range,
    "regexp_replace": _growth_of_third,
    "repeat": _growth_of_count,
    "replace": _growth_of_replace,
    "rpad": _growth_of_pad,
    "translate": _growth_of_third,
    **{
        f"{kind}_{name}": growth
        for kind in ("array", "list")
        for name, growth in {
            "join": _growth_of_join,
            "repeat": _growth_of_count,
            "replace_all": _growth_of_third,
            "replace_n": _growth_of_third,
            "resize": _growth_of_count,
            "to_string": _growth_of_join,
        }.items()
    },
}
"""How many times as long as its other arguments a function's result can be. A number or a text that
is no literal, or the product of two lengths, can be anything."""

_OTHERS = frozenset({
    "abs", "acos", "acosh", "array_any_value", "array_min", "arrays_overlap", "arrays_zip",
    "arrow_cast", "arrow_field", "arrow_metadata", "arrow_try_cast", "arrow_typeof", "ascii",
    "asin", "asinh", "atan", "atan2", "atanh", "bit_length", "btrim", "cardinality",
    "cast_to_type", "cbrt", "ceil", "char_length", "character_length", "chr", "coalesce",
    "concat", "contains", "contains_tokens", "cos", "cosh", "cosine_distance", "cot",
    "current_date", "current_time", "current_timestamp", "date_bin", "date_format", "date_part",
    "date_trunc", "datepart", "datetrunc", "decode", "degrees", "digest", "dot_product",
    "element_at", "empty", "ends_with", "exp", "factorial", "find_in_set", "flatten", "floor",
    "from_unixtime", "gcd", "get_field", "greatest", "ifnull", "initcap", "inner_product",
    "instr", "isnan", "iszero", "json_array_contains", "json_array_length", "json_exists",
    "json_extract", "json_get", "json_get_bool", "json_get_float", "json_get_int",
    "json_get_string", "lcm", "least", "left", "length", "list_any_value", "list_zip", "ln",
    "log", "log10", "log2", "lower", "ltrim", "make_array", "make_date", "make_list",
    "make_map", "make_time", "map", "map_entries", "map_extract", "map_keys", "map_values",
    "md5", "named_struct", "nanvl", "now", "nullif", "nvl", "nvl2", "octet_length", "overlay",
    "pi", "position", "pow", "power", "radians", "rand", "random", "regexp_count",
    "regexp_instr", "regexp_like", "regexp_match", "reverse", "right", "round", "row", "rtrim",
    "sha224", "sha256", "sha384", "sha512", "signum", "sin", "sinh", "split_part", "sqrt",
    "st_area", "st_contains", "st_coveredby", "st_covers", "st_crosses", "st_disjoint",
    "st_distance", "st_equals", "st_intersects", "st_length", "st_overlaps", "st_touches",
    "st_within", "starts_with", "string_to_array", "string_to_list", "strpos", "struct",
    "substr", "substr_index", "substring", "substring_index", "tan", "tanh", "to_char",
    "to_date", "to_hex", "to_local_time", "to_time", "to_timestamp", "to_timestamp_micros",
    "to_timestamp_millis", "to_timestamp_nanos", "to_timestamp_seconds", "to_unixtime", "today",
    "trim", "trunc", "try_cast_to_type", "union_extract", "union_tag", "upper", "uuid",
    "version", "with_metadata",
})  # fmt: skip
_OF_LISTS = frozenset({
    "append", "cat", "compact", "concat", "contains", "dims", "distance", "distinct", "element",
    "empty", "except", "extract", "has", "has_all", "has_any", "indexof", "intersect", "length",
    "max", "ndims", "normalize", "pop_back", "pop_front", "position", "positions", "prepend",
    "push_back", "push_front", "remove", "remove_all", "remove_n", "replace", "reverse",
    "slice", "sort", "union",
})  # fmt: skip
FUNCTIONS = (
    _SHORT | _OTHERS | {f"{kind}_{name}" for kind in ("array", "list") for name in _OF_LISTS}
)
"""Functions whose time and result grow no faster than their arguments."""

_CASTS = {"arrow_cast", "arrow_try_cast"}

# -- syntax ----------------------------------------------------------------------------------------

_OPERATORS = frozenset({
    "AnyOp", "AllOp", "AtTimeZone", "Between", "BinaryOp", "Case", "Cast", "Ceil", "Collate",
    "CompoundFieldAccess", "Dictionary", "Extract", "Floor", "Function", "ILike", "InList",
    "Interval", "IsDistinctFrom", "IsFalse", "IsNotDistinctFrom", "IsNotFalse", "IsNotNull",
    "IsNotTrue", "IsNotUnknown", "IsNull", "IsTrue", "IsUnknown", "Like", "Map", "Nested",
    "Overlay", "Position", "RLike", "SimilarTo", "Struct", "Substring", "Trim", "Tuple",
    "UnaryOp", "Array",
})  # fmt: skip
"""Nodes that are one level of the tree."""

_PARTS = frozenset({
    "Identifier", "CompoundIdentifier", "Value", "TypedString", "SingleQuotedString",
    "DoubleQuotedString", "HexStringLiteral", "Number", "Boolean", "List", "Unnamed", "Expr",
    "Named", "Subscript", "Index", "Slice", "Dot", "SquareBracket", "AngleBracket",
    "Parenthesis", "DateTimeField", "Scale", "Precision", "PrecisionAndScale", "IntegerLength",
    "CharacterLength",
})  # fmt: skip
"""Other nodes in a tree."""

_BUILDERS = {"Array", "Case", "Dictionary", "Map", "Overlay", "Struct", "Trim", "Tuple"}
"""Nodes that make a value for each row."""
_MARKS = {
    "span", "data_type", "case_token", "end_token", "field", "fields", "leading_field",
    "last_field", "quote_style",
}  # fmt: skip
"""Keys whose values are not expressions, or are checked apart."""
_REFUSED_CLAUSES = ("over", "filter", "null_treatment", "within_group")
_TEXTS = {"SingleQuotedString", "DoubleQuotedString", "HexStringLiteral", "Identifier"}

_HIDDEN = r"(?:'[^']*')+|\"[^\"]*\"|`[^`]*`|--[^\n]*"
"""Texts, names and comments: not SQL, whatever they have in them."""
_NUMBER = r"[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_LITERAL = rf"(?:{_NUMBER}|(?:'[^']*')+|(?i:null|true|false)\b)"
_LONG_LIST = re.compile(
    rf"{_HIDDEN}"
    rf"|(?P<list>\((?P<values>\s*{_LITERAL}\s*,\s*{_LITERAL})(?:\s*,\s*{_LITERAL}){{8,}}\s*\))"
    rf"|(?P<vector>\[(?P<numbers>\s*{_NUMBER}\s*,\s*{_NUMBER})(?:\s*,\s*{_NUMBER}){{8,}}\s*\])"
)
"""A long list of values or a vector, or what only looks like one."""
_HIDDEN_PART = re.compile(_HIDDEN)
_NESTED = "/*"
"""Comments in each other: only a parser knows where they end, and so where texts begin."""
_NAME = re.compile(r"[\w .]{1,500}")
"""The path of a field, which need not be SQL: it calls no function, and nothing in it is nested."""
_WORD = re.compile(r"\w+|[^\w\s]")
_PARSER_PREFIX = "sql parser error: "


def check_request(request: Any) -> None:
    """Check all SQL in a request.

    Raises:
        InvalidInputError: (13) a part of it is not one expression, or not in the lists, or could
            take too much time or memory.
    """
    for expression in _expressions(request):
        check_expression(expression)


def check_expression(expression: str) -> None:
    """Check one expression. Raises what `check_request` does."""
    shown = repr(expression if len(expression) <= 100 else f"{expression[:100]}…")
    bad = f"The expression {shown} cannot be planned"
    # Rules of Lance's own parser, which reads some texts otherwise.
    require_sound(expression, bad)
    try:
        _check_tree(_parse(expression))
    except InvalidInputError as error:
        raise invalid(f"{bad}: {error}") from None


def _expressions(value: Any, *, is_sql: bool = False) -> Iterator[str]:
    if isinstance(value, str) and is_sql:
        yield value
    elif isinstance(value, list):
        for each in value:
            if not isinstance(each, (int, float)):  # a vector has millions of them
                yield from _expressions(each, is_sql=is_sql)
    elif isinstance(value, (Mapping, BaseModel)):
        for name, each in value.items() if isinstance(value, Mapping) else value:
            if name == "updates" and isinstance(each, list):
                yield from _expressions([pair[1:] for pair in each], is_sql=True)
            elif name == "column_aliases" and isinstance(each, Mapping):
                sources = [source for source in each.values() if not _NAME.fullmatch(source)]
                yield from _expressions(sources, is_sql=True)
            else:
                yield from _expressions(each, is_sql=is_sql or name in _FIELDS)


def _parse(expression: str) -> Any:
    """Return the syntax tree of one expression."""
    text, code = expression, _HIDDEN_PART.sub("''", expression)
    if _NESTED in code:
        code = text
    else:
        # Values say nothing about the tree, and some clients send lists of a million of them.
        text = _LONG_LIST.sub(_shorten_list, text)
        code = _HIDDEN_PART.sub("''", text)
    if len(_WORD.findall(code)) > MAX_WORDS:  # the parser's own stack is limited, too
        raise invalid(f"it is too long: it has more than {MAX_WORDS} words and signs")
    try:
        # In brackets, on a line of its own: it may end in a comment.
        [statement] = sqloxide.parse_sql(sql=f"SELECT 1 WHERE ({text}\n)", dialect="generic")
    except ValueError as error:
        reason = str(error).splitlines()[-1].strip().removeprefix(_PARSER_PREFIX)
        raise invalid(describe_syntax(reason, f"({text})")) from None
    tree = statement["Query"]["body"]["Select"]["selection"]
    if not isinstance(tree, dict) or "Nested" not in tree:
        raise invalid("it is not one expression")
    return tree["Nested"]


def _shorten_list(found: re.Match[str]) -> str:
    if found["list"]:
        return f"({found['values']})"
    return f"[{found['numbers']}]" if found["vector"] else found[0]


# -- rules -----------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """What the nodes above a node say about it."""

    depth: int = 1
    longest: float = math.inf
    """How many characters a text may have."""
    growth: float = 1
    """How many times the functions above can make it longer."""


def _check_tree(tree: Any) -> None:
    """Check each node at its place."""
    pending = [(tree, _Place())]
    conditions = 0
    while pending:
        node, place = pending.pop()
        if place.depth > MAX_DEPTH:
            raise invalid(f"it is too long: its parts are nested more than {MAX_DEPTH} deep")
        if isinstance(node, (list, tuple)):
            pending += [(each, place) for each in node]
        elif isinstance(node, dict) and not _is_node(node):
            pending += [(each, place) for key, each in node.items() if key not in _MARKS]
        elif isinstance(node, dict):
            [(name, content)] = node.items()
            if name == "BinaryOp" and content["op"] in ("And", "Or"):
                conditions += 1
            else:
                place = _check_node(name, content, place)
            if name in _TEXTS:
                _check_text(content, place.longest)
            else:
                pending.append((content, place))
    if conditions >= MAX_CONDITIONS:
        raise invalid(f"it is too long: it joins more than {MAX_CONDITIONS} conditions")


def _is_node(value: Mapping[str, Any]) -> bool:
    """Return whether a map is a node of the tree, with its name as the only key."""
    return len(value) == 1 and next(iter(value))[:1].isupper()


def _check_node(name: str, content: Any, place: _Place) -> _Place:
    """Check a node without those below it; return the place of these."""
    if name not in _OPERATORS and name not in _PARTS:
        raise invalid(f"this server does not accept {_spell(name)} in expressions")
    if name in ("Cast", "TypedString"):
        _check_type(content["data_type"])
    place = place._replace(depth=place.depth + (name in _OPERATORS))
    if name == "Function":
        return _check_function(content, place)
    builds = name in _BUILDERS or (name == "BinaryOp" and content["op"] == "StringConcat")
    return place._replace(longest=min(place.longest, MAX_TEXT)) if builds else place


def _check_function(content: Mapping[str, Any], place: _Place) -> _Place:
    name = ".".join(each.get("Identifier", {}).get("value", "") for each in content["name"]).lower()
    if name not in FUNCTIONS and name not in GROWING:
        raise invalid(f"the function {name} is not available on this server")
    for clause in _REFUSED_CLAUSES:
        if content.get(clause):
            raise invalid(f"this server does not accept {clause.upper()} in expressions")
    if name in _CASTS:
        _check_cast(name, content["args"])
    growth = place.growth
    if name in GROWING:
        growth *= GROWING[name](_literals(content["args"]))
        if growth > MAX_GROWTH:
            raise invalid(
                f"the function {name} is not available on this server unless literals make its "
                f"result at most {MAX_GROWTH} times as long as its arguments"
            )
    longest = MAX_SHORT_TEXT if name in _SHORT else MAX_TEXT
    return place._replace(longest=min(place.longest, longest), growth=growth)


def _literals(arguments: Any) -> _Literals:
    """Return the arguments of a call, and empty texts after them."""
    given = arguments["List"]["args"] if isinstance(arguments, dict) else []
    return [*map(_literal, given), *[""] * 4]


def _literal(argument: Any) -> str | None:
    """Return the text of an argument that is a string or a number without a sign."""
    for key in ("Unnamed", "Expr", "Value", "value"):
        argument = argument.get(key) if isinstance(argument, dict) else None
    if not isinstance(argument, dict):
        return None
    found = argument.get("SingleQuotedString", argument.get("Number"))
    return found[0] if isinstance(found, (list, tuple)) else found


def _check_cast(function: str, arguments: Any) -> None:
    """Check the type that a function casts to."""
    last = arguments["List"]["args"][-1:] if isinstance(arguments, dict) else []
    found = _literal(last[0]) if last else None
    if found is None:
        raise invalid(f"the second argument of {function} must be a type as a string literal")
    if "fixed" in found.lower():
        sizes = (int(each.lstrip("0")[:9] or 1) for each in re.findall(r"\b\d+\b", found))
        _check_size(math.prod(sizes), f"{function} cannot cast to {found[:100]}")


def _check_type(data_type: Any) -> None:
    """Check the type of a cast in SQL: ``FLOAT[3]`` has a fixed size."""
    size, pending = 1, [data_type]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            bracket = each.get("SquareBracket")
            if bracket and isinstance(bracket[-1], int):
                size *= bracket[-1]
            pending += each.values()
        elif isinstance(each, (list, tuple)):
            pending += each
    _check_size(size, "a cast to this type is not possible")


def _check_size(size: int, bad: str) -> None:
    if size > MAX_FIXED_SIZE:
        raise invalid(
            f"{bad} on this server: a type of fixed size may have {MAX_FIXED_SIZE} values at most"
        )


def _check_text(content: Any, longest: float) -> None:
    text = content if isinstance(content, str) else content.get("value", "")
    if len(text) > longest:
        raise invalid(
            f"a text of {len(text)} characters is too long where it is used: the limit is "
            f"{longest:.0f}"
        )


def _spell(name: str) -> str:
    """Return the name of a node as words of SQL."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).upper()
