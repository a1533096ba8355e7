"""Parsing of requests: models, identifiers, modes, and references to versions.

pylance's and LanceDB's Rust code calls a namespace with a `dict` that has a `model_dump` method, so
a request is a model of the API or a mapping of the same fields.

Some requests have fields that LanceDB's clients send and the specification lacks: operations of
lance-bridge's namespaces take them in place of the specification's requests.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar, get_type_hints

import lance_namespace as api
from lance_namespace import LanceNamespace
from lance_namespace.errors import LanceNamespaceError
from lance_namespace_urllib3_client.models import AddColumnsEntry
from pydantic import BaseModel, Field, ValidationError

from .catalog import Capabilities, NameRule, Path
from .errors import internal, invalid, is_callers_own, is_panic, unsupported
from .storage.manifests import MAIN

ModelT = TypeVar("ModelT", bound=BaseModel)
ModeT = TypeVar("ModeT", bound=Enum)

_MOST_ERRORS = 5000
_SHOWN = 60
"""Characters of a name that a message shows."""


def as_model(request_type: type[ModelT], request: Any) -> ModelT:
    """Return a request as a model of its type. Fields that the type does not have are ignored.

    Args:
        request: Such a model, a mapping of its fields, or anything else that has `model_dump`.

    Raises:
        InvalidInputError: It is none of these, or a field has a wrong value.
    """
    if isinstance(request, request_type):
        return request
    try:
        return request_type.model_validate(_fields_of(request))
    except ValidationError as error:
        raise invalid(f"Not a {_name_of(request_type)}: {_describe(error)}") from None
    except (TypeError, ValueError) as error:
        raise invalid(f"Not a {_name_of(request_type)}: {str(error)[:300]}") from error


def _name_of(request_type: type[BaseModel]) -> str:
    """Return the specification's name of a request, also for a type derived from it."""
    names = (each.__name__ for each in request_type.__mro__)
    return next((name for name in names if name.endswith("Request")), request_type.__name__)


def _fields_of(request: Any) -> dict[str, Any]:
    if isinstance(request, Mapping):
        return dict(request)
    if hasattr(request, "model_dump"):
        return dict(request.model_dump())
    raise TypeError(f"it is a {type(request).__name__}, neither a model nor a mapping")


def _describe(error: ValidationError) -> str:
    """Return which fields are wrong and why, without their values, which may be secret."""
    if error.error_count() > _MOST_ERRORS:  # it takes seconds to list millions of them
        return f"{error.error_count()} values are wrong"
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in problems[:3]]
    return "; ".join(shown)[:300]


def as_operation(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method so that it takes any form of request, and raises errors of the API only."""
    takes_request = "request" in inspect.signature(function).parameters

    @functools.wraps(function)
    def operation(self: Any, *arguments: Any, **options: Any) -> Any:
        try:
            if not takes_request:
                return function(self, *arguments, **options)
            request, *more = arguments or (options.pop("request"),)
            model = as_model(_request_type(function), request)
            return function(self, model, *more, **options)
        except LanceNamespaceError:
            raise
        except BaseException as error:
            is_failure = isinstance(error, Exception) or is_panic(error)
            if not is_failure or is_callers_own(error):
                raise
            raise internal(function.__name__, error) from error

    return operation


@functools.cache
def _request_type(function: Callable[..., Any]) -> type[Any]:
    """Return the type of an operation's request; resolved at its first call, for a fast import."""
    request_type: type[Any] = get_type_hints(function)["request"]
    return request_type


# -- identifiers -----------------------------------------------------------------------------------

# Every name that these return is safe in a filter, a URL and a path, as each catalog's `NameRule`
# ensures.


def parse_namespace(identifier: Sequence[str] | None, capabilities: Capabilities) -> Path:
    """Return the path of any namespace, the root included (``None`` and ``[]``).

    Raises:
        InvalidInputError: (13) more names than the catalog has levels, or a bad name.
    """
    names = tuple(identifier or ())
    rules = capabilities.namespace_levels
    if len(names) > len(rules):
        raise invalid(
            f"Namespace identifier {_format_names(names)} has {_format_count(names)}; "
            f"this catalog has {_format_levels(rules)}"
        )
    return _check_names(names, rules, capabilities)


def parse_table_namespace(
    identifier: Sequence[str] | None, capabilities: Capabilities, default: Path = ()
) -> Path:
    """Return the path of a namespace that can hold tables, the innermost level.

    Args:
        default: The namespace that the root stands for; empty for none.

    Raises:
        InvalidInputError: (13) any other number of names, or a bad name.
    """
    names = tuple(identifier or default)
    rules = capabilities.namespace_levels
    if len(names) != len(rules):
        raise invalid(
            f"Namespace identifier {_format_names(names)} has {_format_count(names)}; "
            f"tables are in {_format_levels(rules)}"
        )
    return _check_names(names, rules, capabilities)


def parse_table(
    identifier: Sequence[str] | None, capabilities: Capabilities, default: Path = ()
) -> Path:
    """Return the path of a table.

    Args:
        default: The namespace of a table that is given by its own name alone; empty for none.

    Raises:
        InvalidInputError: (13) no identifier, the wrong number of names, or a bad name.
    """
    if identifier is None:
        raise invalid("The request has no table identifier: set `id`")
    names = tuple(identifier)
    rules = (*capabilities.namespace_levels, capabilities.table_rule)
    if len(names) == 1 and default:
        names = (*default, *names)
    if len(names) != len(rules):
        hint = "" if default or len(names) != 1 else ". Set default-namespace to use one name"
        raise invalid(
            f"Table identifier {_format_names(names)} has {_format_count(names)}; "
            f"this catalog takes {_format_levels(rules)}{hint}"
        )
    return _check_names(names, rules, capabilities)


def _format_count(names: Path) -> str:
    return f"{len(names)} name{'' if len(names) == 1 else 's'}"


def _check_names(names: Path, rules: Sequence[NameRule], capabilities: Capabilities) -> Path:
    for name, rule in zip(names, rules, strict=False):
        _check(name, rule)
    return tuple(name.lower() for name in names) if capabilities.folds_case else names


def _check(name: str, rule: NameRule) -> None:
    noun = rule.noun.capitalize()
    if not isinstance(name, str):
        raise invalid(f"{noun} name {name!r} must be a string")
    if not name:
        raise invalid(f"{noun} name is empty")
    if len(name) > rule.max_length:
        raise invalid(
            f"{noun} name {_short(name)} has {len(name)} characters; "
            f"at most {rule.max_length} are allowed"
        )
    if not rule.pattern.fullmatch(name):
        raise invalid(f"{noun} name {_short(name)} must consist of {rule.allowed}")


def _format_levels(rules: Sequence[NameRule]) -> str:
    return f"{len(rules)}: [{', '.join(rule.noun for rule in rules)}]"


def _format_names(names: Path) -> str:
    return "[" + ", ".join(_short(name) for name in names[:6]) + (", …]" if names[6:] else "]")


def _short(name: object) -> str:
    text = repr(name)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…'"


# -- modes -----------------------------------------------------------------------------------------


class CreateMode(Enum):
    """What to do if the name exists already. Source: CreateNamespace, CreateTable."""

    CREATE = "Create"
    EXIST_OK = "ExistOk"
    OVERWRITE = "Overwrite"


class RegisterMode(Enum):
    """What to do if the name exists already. Source: RegisterTable."""

    CREATE = "Create"
    OVERWRITE = "Overwrite"


class DropMode(Enum):
    """What to do if the namespace does not exist. Source: DropNamespace."""

    FAIL = "Fail"
    SKIP = "Skip"


class DropBehavior(Enum):
    """What to do if the namespace is not empty. Source: DropNamespace."""

    RESTRICT = "Restrict"
    CASCADE = "Cascade"


def _spellings(word: str) -> tuple[str, str]:
    """Return ``ExistOk`` as ``existok`` and ``exist_ok``."""
    return word.lower(), re.sub(r"(?<!^)(?=[A-Z])", "_", word).lower()


def parse_mode(mode_type: type[ModeT], text: str | None, default: ModeT) -> ModeT:
    """Return the mode that ``text`` names, or ``default`` for None.

    Raises:
        InvalidInputError: (13) the mode is unknown.
    """
    if text is None:
        return default
    for mode in mode_type:
        if text.lower() in _spellings(str(mode.value)):
            return mode
    known = ", ".join(str(mode.value) for mode in mode_type)
    raise invalid(f"Unknown mode {text[:60]!r}: use one of {known}")


# -- versions, tags and branches -------------------------------------------------------------------


@dataclass(frozen=True)
class Ref:
    """A reference to a state of a table: a version, a tag, or the latest; of main or a branch."""

    version: int | None = None
    tag: str | None = None
    branch: str | None = None

    @classmethod
    def of(
        cls, version: int | None = None, tag: str | None = None, branch: str | None = None
    ) -> Ref:
        """Return the reference that a request names.

        Raises:
            InvalidInputError: (13) a tag together with a version or branch, or a bad version.
        """
        if tag is not None and (branch is not None or version is not None):
            raise invalid("`tag` cannot be used together with `version` or `branch`")
        if version is not None and version < 1:
            raise invalid(f"version must be 1 or more, not {version}")
        return cls(version, tag, None if branch in (None, MAIN) else branch)

    def __str__(self) -> str:
        """Return the reference for messages."""
        if self.tag is not None:
            return f"tag '{self.tag}'"
        of_branch = f" of branch '{self.branch}'" if self.branch else ""
        return f"version {self.version or 'latest'}{of_branch}"


LATEST = Ref()


# -- fields of LanceDB's clients -------------------------------------------------------------------


class ColumnOrder(BaseModel):
    """One column that rows are sorted by. Source: ``ColumnOrdering`` of LanceDB."""

    column_name: str
    """The path of a column of the table."""
    ascending: bool = True
    nulls_first: bool = False


class OrderedQuery(api.QueryTableRequest):
    """A query with sorted rows; a search sorts the ``k`` nearest rows after it found them."""

    order_by: list[ColumnOrder] | None = None


class OrderedQueryAnalysis(api.AnalyzeTableQueryPlanRequest):
    """An analysis of an `OrderedQuery`."""

    order_by: list[ColumnOrder] | None = None


class OrderedQueryPlan(api.ExplainTableQueryPlanRequest):
    """The plan of an `OrderedQuery`."""

    query: OrderedQuery


class ExtendedIndexRequest(api.CreateTableIndexRequest):
    """An index that may replace the one with its name, with all options that LanceDB sends."""

    replace: bool = False
    """Whether it replaces the index of its name on the same column."""
    min_ngram_length: int | None = None
    max_ngram_length: int | None = None
    prefix_only: bool | None = None
    block_size: int | None = None
    custom_stop_words: list[str] | None = None
    lancedb_defaults: bool | None = None
    """Whether ``num_sub_vectors`` has LanceDB's default, which is better for long vectors."""

    @property
    def further_options(self) -> list[str]:
        """The given options that the specification lacks."""
        return [name for name in FURTHER_INDEX_OPTIONS if getattr(self, name) is not None]


FURTHER_INDEX_OPTIONS = (
    "min_ngram_length",
    "max_ngram_length",
    "prefix_only",
    "block_size",
    "custom_stop_words",
)
"""Options of full-text indices that the specification lacks."""


class ExtendedColumnsRequest(api.AlterTableAddColumnsRequest):
    """New columns, which may be columns of nulls of any Arrow type."""

    new_columns: list[AddColumnsEntry] = Field(default_factory=list)
    arrow_schema: str | None = None
    """The columns of nulls: a schema as an Arrow IPC message, in base64. A struct that exists gets
    the fields that it lacks. Entries of `new_columns` are for namespaces that ignore this, and have
    the same columns, if an expression can make all of them."""


def require_extensions(namespace: LanceNamespace, request: BaseModel) -> None:
    """Refuse fields of this module that a namespace of another library would ignore.

    Raises:
        UnsupportedOperationError: (0)
    """
    if hasattr(namespace, "query_table_reader"):
        return
    query = getattr(request, "query", request)
    if getattr(query, "order_by", None):
        raise unsupported("This catalog does not support order_by: sort the rows that it returns")
    if isinstance(request, ExtendedIndexRequest) and request.further_options:
        raise unsupported(
            f"This catalog does not support {request.further_options[0]} of an index; leave it out"
        )
    if not isinstance(request, ExtendedColumnsRequest) or request.arrow_schema is None:
        return
    if not request.new_columns:
        raise unsupported(
            "This catalog cannot add columns of nulls of such a type: give them expressions"
        )
