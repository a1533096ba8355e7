"""Messages of Lance, DataFusion and object stores, cut to what concerns a user.

They are written for developers: types of Rust, places in the source, retries, XML of a store's
answer, and SQL that Lance makes around an expression.

Pylance's namespaces repeat Lance's errors as Rust prints them. They report a wrong expression as an
internal error, with the fields of the Rust value. What is wrong with the request is in a text among
them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

_LONGEST = 300
_HEAD, _TAIL = 2000, 500
"""Characters of a message that are examined: it can repeat a long expression of the request, and
the time of some patterns grows with the square of that."""
_DEBUG = re.compile(
    r"\b[A-Z]\w*(?:\([A-Z]\w*)*\(? ?\{ (?:source|code|kind|message|error|path|backtrace)\b.*",
    re.DOTALL,
)
"""An error as Rust prints it for developers: ``IO { source: Os { code: 2, message: "…" } }``."""
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_MESSAGE = re.compile(rf"\b(?:message|error): {_QUOTED}")
_TEXT = re.compile(_QUOTED)
_PLACE = re.compile(r",? (?:location: )?[^\s(]+\.rs:\d+(?::\d+)?")
"""Where in the source of Lance an error was made."""
_PRINTED_PLACE = re.compile(
    r",? location: Location \{[^{}]*\}?(?:, backtrace: MaybeBacktrace(?: \{[^{}]*\})?)?"
)
"""The same as Rust prints it: ``location: Location { file: "…", line: 1, column: 2 }``."""

# -- what a message has before the reason ----------------------------------------------------------

_KINDS = re.compile(
    r"(?:^|(?<=: ))(?:"
    r"Encountered internal error\. Please file a bug report at \S+ |"
    r"LanceError\(\w+\): |Generic \S+ error: |Error performing \w+ request: |"
    r"(?:External|Arrow|Query Execution|Execution|Internal|I[Oo]|Wrapped|Object ?[Ss]tore|Cast|"
    r"HTTP|SQL|sql parser|Schema|Namespace) error: |"
    r"Invalid user input: |Error during planning: |This feature is not implemented: |"
    r"Error applying filter expression to batch: |Error parsing function: |"
    r"Unable to walk dir: |IO error for operation on )+"
)
"""Names of types of errors, and of steps inside Lance."""
_STEP = re.compile(
    r"^Error (?:resolving filter expression|optimizing sql filter:) .*"
    r"(?:: Invalid user input: | \((?:LanceError\(\w+\): |Invalid user input: |(?=regex parse)))",
    re.DOTALL,
)
"""A step in which Lance repeats the whole expression."""
_STATEMENT = re.compile(
    r"^Error (?:parsing|tokenizing) statement: SELECT 1 FROM t WHERE (?P<sql>.*)"
    r" \((?:sql parser error: )?(?P<reason>.*)\)$",
    re.DOTALL,
)
"""The statement that Lance makes of an expression, and what is wrong with it."""

# -- other texts -----------------------------------------------------------------------------------

_REGEX = re.compile(r"regex parse error:.*error: (.*?)\)?$", re.DOTALL)
_LITERAL = re.compile(
    r"Received literal \w+\((?P<value>.*)\) and could not convert to literal of type '(?P<type>\w+)"
    r".*",
    re.DOTALL,
)
_PLAN = re.compile(r"(logical expression \w+)\(.*", re.DOTALL)
_NUMBER = re.compile(r" ?\(os error \d+\)")
_BUG = re.compile(r"\.?\s*This issue was likely caused by a bug in DataFusion.*$", re.DOTALL)
_FIELD = re.compile(r"\bField \{ data_type: (\w+)(?:, nullable: \w+)? \}")
"""The type of the values of a list, as Rust prints it."""
_PARSER_PLACE = re.compile(r" at Line: \d+, Column: \d+")
_PARSER = re.compile(r"^Expected: (.*), found: (.*)$")

# -- object stores ---------------------------------------------------------------------------------

_CALL = re.compile(
    r"Error performing (?P<method>[A-Z]+) (?P<url>\S+) in \S+?"
    r"(?:, after (?P<retries>\d+) retries, max_retries: ?\d+, retry_timeout: ?\S+?)? +- "
)
_STATUS = re.compile(
    r"(?:Server returned (?:non-2xx status code|error response)|Client error with status):? "
    r"(?P<status>\d{3} [A-Za-z ]+?)(?::\s*(?P<body>.*))?$",
    re.DOTALL,
)
_XML = re.compile(r"<(Code|Message)>([^<]*)</\1>")
_DENIED = re.compile(
    r"Permission denied \(os error 13\)|Operation not permitted \(os error 1\)"
    r"|(?:status code:|error response:|with status:?) 403\b"
    r"|\(code: AccessDenied\)"  # of one file in a bulk delete
    r"|\bkind: PermissionDenied\b|\bPermissionDenied \{ "  # as Rust prints it, and so the next
    r"|\bStatus \{ status: 403\b"
)
_UNAUTHENTICATED = re.compile(
    r"(?:status code:|error response:|with status:?) 401\b"
    r"|\bUnauthenticated \{ |\bStatus \{ status: 401\b"
    r"|<Code>(?:InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken)</Code>"
)
_NO_CREDENTIALS = re.compile(
    r"CredentialsNotLoaded|no providers in chain|credential provider was not enabled"
    r"|Error performing [A-Z]+ https?://(?:169\.254\.169\.254|metadata\.google\.internal)"
)
"""Parts of messages if an object store's client has no credentials, and looks for them."""
NO_CREDENTIALS = (
    "no credentials for the storage were found: set properties storage.*, or those of its "
    "environment"
)


def cut_message(text: str) -> str:
    """Return what concerns a user in a message of Lance, on one line of at most 300 characters.

    A message of another library has none of what is removed, and stays.
    """
    text = without_middle(text)
    if _NO_CREDENTIALS.search(text):
        return NO_CREDENTIALS
    for step in _STEPS:
        text = step(text)
    return text.strip()[:_LONGEST]


def is_for_developers(text: str) -> bool:
    """Return whether a message has places in the source of Lance, or an error printed by Rust."""
    text = without_middle(text)
    return _PLACE.search(text) is not None or _DEBUG.search(text) is not None


def is_access_denied(text: str) -> bool:
    """Return whether a message says that a file system or an object store denied access."""
    return _DENIED.search(without_middle(text)) is not None


def is_caller_unknown(text: str) -> bool:
    """Return whether a message says that an object store did not accept the credentials."""
    return _UNAUTHENTICATED.search(without_middle(text)) is not None


def without_middle(text: str) -> str:
    """Return the parts of a message that are examined."""
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]} … {text[-_TAIL:]}"


def _from_debug(text: str) -> str:
    """Put the innermost message in the place of an error that is printed for developers."""
    found = _DEBUG.search(text)
    if found is None:
        return text
    texts = _MESSAGE.findall(found[0]) or _TEXT.findall(found[0])
    return text[: found.start()] + (_unescape(texts[-1]) if texts else "")


def _unescape(text: str) -> str:
    """Return a text of Rust without its escapes."""
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


def _from_expression(text: str) -> str:
    """Leave out the expression, which the beginning of our messages has already."""
    text = _KINDS.sub("", text, count=1) if text.startswith("Invalid user input: ") else text
    statement = _STATEMENT.search(text)
    if statement is not None:
        return describe_syntax(statement["reason"], statement["sql"])
    if step := _STEP.search(text):
        rest = text[step.end() :]
        text = rest.removesuffix(")") if rest.count(")") > rest.count("(") else rest
    text = _REGEX.sub(r"regular expression: \1", text)
    text = _LITERAL.sub(r"the value \g<value> does not fit the type \g<type>", text)
    return _PLAN.sub(r"\1", text)


def describe_syntax(reason: str, sql: str) -> str:
    """Return what a parser found wrong with an expression.

    Args:
        reason: Its message.
        sql: The expression, which may be in brackets that are not its own.
    """
    reason = _PARSER_PLACE.sub("", reason)
    found = _PARSER.search(reason)
    if found is None:
        return reason
    is_end = found[2] == "EOF" or (found[2] == ")" and sql.count(")") == 1 and sql[-1] == ")")
    return f"expected {found[1]}, found {'the end' if is_end else found[2]}"


def _from_store(text: str) -> str:
    """Shorten what an object store's client says of a request: what was asked, and the answer."""
    text = _CALL.sub(_describe_call, text, count=1)
    return _STATUS.sub(lambda found: _describe_answer(found["status"], found["body"] or ""), text)


def _describe_call(found: re.Match[str]) -> str:
    tried = f", tried {int(found['retries']) + 1} times" if found["retries"] else ""
    return f"{found['method']} {found['url'].partition('?')[0]}{tried}: "


def _describe_answer(status: str, body: str) -> str:
    facts = dict(_XML.findall(body)) or _facts_in_json(body)
    return ": ".join(filter(None, (status, facts.get("Code"), facts.get("Message"))))


def _facts_in_json(body: str) -> dict[str, str]:
    """Return the code and the message in the answer of Azure or Google."""
    try:
        error = json.loads(body)["error"]
        return {"Code": str(error.get("code", "")), "Message": str(error.get("message", ""))}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _without_types(text: str) -> str:
    for pattern in (_PARSER_PLACE, _NUMBER, _BUG, _KINDS):
        text = pattern.sub("", text)
    return _FIELD.sub(r"\1", text)


_STEPS: tuple[Callable[[str], str], ...] = (
    lambda text: _PLACE.sub("", text),
    _from_debug,
    _from_expression,
    _from_store,
    _first_line,
    _without_types,
)


# -- errors of pylance's namespaces ----------------------------------------------------------------


_RUST = re.compile(r"location: Location \{|/rust/[\w/-]+\.rs:\d+|/library/[\w/-]+\.rs:\d+")
_MISSING = re.compile(rf"FieldNotFound \{{ field: Column \{{ relation: [^\"]*?name: {_QUOTED}")
_NAMED = re.compile(r"No field named ([^.]+|\"[^\"]+\")\.|column (\S+) does not exist in schema")
_PRINTED = re.compile(rf"\b(\w+) \{{ (?:source|message): (?:\w+\()?{_QUOTED}")
_BEFORE_REASON = re.compile(
    r"^.*\bLanceError\(\w+\): |^(?:Internal error: )?Failed to run \w+ on table at '.*?': ",
    re.DOTALL,
)
_PREFIX = re.compile(
    r"^(?:(?:Internal error|Invalid input|Invalid user input|Error during planning|Execution error"
    r"|Arrow error|Error applying filter expression to batch|Error resolving filter expression): )+"
)
_WRONG_REQUEST = {
    "Arrow", "Execution", "Index", "InvalidInput", "NotSupported", "Schema", "SchemaMismatch",
}  # fmt: skip
_OF_VALUES = ("Failed to coerce types", "Wkt(", "InvalidGeoArrow(")
"""Parts of printed errors about a value of the request."""
_REASONS = ("LanceError(Arrow): ", "Invalid user input: ", "Query Execution error: ")
"""What precedes the reason in messages about a wrong request."""
_MALFORMED = ("Failed to read IPC stream", "No data provided")
"""What they say of rows that they cannot read."""
_LONG_NAME = "File name too long"
_OTHER_SCHEMA = "Append with different schema: "
_OTHER_ANSWER = re.compile(
    r"Failed to parse (?:response: |error response: status=(\d{3}(?: [A-Za-z -]+)?))"
)
"""What the client of a REST catalog says of a response that is not of the API."""
_NO_ANSWER = re.compile(r'Failed to execute request: reqwest::Error \{ kind: \w+, url: "([^"]*)".*')
"""What the client of a REST catalog says if its server could not be reached."""
_HINT = "\n\tCandidate functions"


def without_places(text: str) -> str:
    """Return a message without places in the source of Lance."""
    return _PLACE.sub("", _PRINTED_PLACE.sub("", text))


def cut_before_place(text: str, longest: int) -> str:
    """Return the start of a message, without a place that would be cut.

    A part of a place is not recognised later. Whole ones stay: they tell errors of Lance from
    others.
    """
    for pattern in (_PLACE, _PRINTED_PLACE):
        for found in pattern.finditer(text):
            if found.start() < longest < found.end():
                longest = found.start()
    return text[:longest]


def is_not_implemented(text: str) -> bool:
    """Return whether a namespace does not have the operation."""
    return "failed with NotImplementedError" in text


def is_overflow(text: str) -> bool:
    """Return whether a number of the request does not fit."""
    return "failed with OverflowError" in text


def is_of_value(text: str) -> bool:
    """Return whether a message is about a name or a value of the request, also if it blames IO."""
    return any(each in text for each in (*_OF_VALUES, _LONG_NAME))


def find_silent_server(text: str) -> tuple[str, str] | None:
    """Return the address of a server that did not respond, and why; None for other messages."""
    found = _NO_ANSWER.search(without_middle(text))
    if found is None:
        return None
    if "TimedOut" in found[0]:
        return found[1], "no response in time"
    messages = _MESSAGE.findall(found[0])
    return found[1], _NUMBER.sub("", _unescape(messages[-1])) if messages else "connection lost"


def find_other_response(text: str) -> str | None:
    """Return the status of a response that is not of the API, such as ``502 Bad Gateway``.

    Returns:
        "200 OK" also for other successes; None for other messages.
    """
    found = _OTHER_ANSWER.search(without_middle(text))
    return (found[1] or "200 OK") if found else None


def find_other_schema(text: str) -> str:
    """Return in what the schema of rows differs from the table's; empty for other messages."""
    _, found, fields = text.partition(_OTHER_SCHEMA)
    return _plain_reason(fields) if found else ""


def find_missing_column(text: str) -> str | None:
    """Return the column of the request that does not exist, or None for other messages."""
    found = (_MISSING.search(text) or _NAMED.search(text)) if _RUST.search(text) else None
    return found and _unescape(next(filter(None, found.groups())))


def find_wrong_part(text: str, *, is_known: bool, is_of_value: bool) -> str:
    """Return what is wrong with the request, on one line; empty if the message is not about it.

    Args:
        is_known: Whether the error's code says that the request is wrong.
        is_of_value: Whether a value of the request is known to be wrong.
    """
    is_of_value = is_of_value or any(each in text for each in _OF_VALUES)
    wrong = _wrong_part(text, is_known=is_known, is_of_value=is_of_value)
    return wrong and _plain_reason(wrong)


def _wrong_part(text: str, *, is_known: bool, is_of_value: bool) -> str:
    if _LONG_NAME in text:
        return "a name in the request is too long"
    if any(each in text for each in _MALFORMED):
        return text.partition("IoError")[0].rstrip(": ")
    is_of_rust = _RUST.search(text) is not None
    printed = _PRINTED.search(text) if is_of_rust or is_of_value else None
    if printed is not None and (is_of_value or printed[1] in _WRONG_REQUEST):
        return _unescape(printed[2])
    for mark in _REASONS:
        if mark in text:
            return text.rpartition(mark)[2]
    return text if is_of_value or (is_known and is_of_rust) else ""


def _plain_reason(text: str) -> str:
    """Return the first line of a text, without places in sources and without categories."""
    reason = _BEFORE_REASON.sub("", without_places(text.partition(_HINT)[0]).strip())
    return _PREFIX.sub("", reason).splitlines()[0]
