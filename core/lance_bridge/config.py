"""Configuration: plain string properties, declared once per catalog, checked when connecting.

A catalog's properties are the fields of a `CatalogConfig`; the field's alias is the public
key. Values come from the arguments, then from the environment (``LANCE_BRIDGE_<NAME>_<KEY>``), then
from a YAML file of named catalogs (``~/.lance-bridge.yaml``, or ``$LANCE_BRIDGE_CONFIG``)::

    catalogs:
      prod:
        impl: hive
        uri: thrift://metastore:9083

A field of the model is a property. Its alias is the key, its description the meaning; a `SecretStr`
is a secret.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin

from lance_namespace.errors import InvalidInputError
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
)
from pydantic.fields import FieldInfo

from _lance_bridge_names import vendors

from .config_file import (
    SECRETS_FILE,
    SECRETS_PROVIDER,
    NamedCatalogs,
    catalogs_in,
    longer_names,
    named_catalogs,
    property_texts,
    read_secrets,
)
from .errors import invalid
from .extras import import_attribute
from .records import parse_retention
from .secret_renewal import SecretRenewal
from .storage_options import (
    SECRET_STORAGE_PATTERN,
    STORAGE_PREFIX,
    VENDOR_PREFIX,
    is_secret_option,
    may_be_credential,
    option_names,
    public_only,
)
from .user_files import CONFIG_FILE_VARIABLE, config_path

# -- properties that a model declares --------------------------------------------------------------


_HIDDEN = "********"
"""The example of a secret property."""


@dataclass(frozen=True)
class Property:
    """One declared property, as a spec's table of properties shows it."""

    key: str
    type: str
    required: bool
    default: str | None
    secret: bool
    meaning: str
    example: str

    @property
    def default_text(self) -> str:
        """The default for a table: ``required`` where a value must be given, empty without one."""
        return "required" if self.required else self.default or ""


@cache
def declared_properties(model: type[BaseModel]) -> tuple[Property, ...]:
    """Return the properties of a model, in the order of their declaration."""
    return tuple(_property(name, field) for name, field in model.model_fields.items())


def _property(name: str, field: FieldInfo) -> Property:
    key = field.alias or name
    is_secret = SecretStr in _types_in(field.annotation)
    has_options = key.endswith(".*")
    return Property(
        key=key,
        type="string" if has_options else _type_name(field.annotation),
        required=field.is_required(),
        default=None if has_options else _default_text(field.get_default()),
        secret=is_secret,
        meaning=field.description or "",
        example=_HIDDEN if is_secret else _example_text(field),
    )


def _types_in(annotation: Any) -> tuple[Any, ...]:
    inner = get_args(annotation) if get_origin(annotation) is not Literal else ()
    return (annotation, *(t for a in inner for t in _types_in(a)))


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " | ".join(f"`{choice}`" for choice in get_args(annotation))
    types = [a for a in (get_args(annotation) or (annotation,)) if a is not type(None)]
    if len(types) == 1 and get_origin(types[0]) is Literal:
        return _type_name(types[0])
    names = {bool: "boolean", int: "integer", float: "number of seconds"}
    return names.get(types[0], "string")


def _default_text(value: Any) -> str | None:
    if value is None or "Undefined" in type(value).__name__:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _example_text(field: FieldInfo) -> str:
    """Return the declared example, or a value that differs from the default, if any is known."""
    if field.examples:
        return str(field.examples[0])
    default = field.get_default()
    choices = [a for a in _types_in(field.annotation) if get_origin(a) is Literal]
    if choices:
        return next(str(each) for each in get_args(choices[0]) if each != default)
    if isinstance(default, bool):
        return str(not default).lower()
    return str(round(default * 2)) if isinstance(default, int | float) else ""


def problems_of(error: ValidationError, prefix: str = "") -> str:
    """Return which properties are invalid and why, without their values.

    Args:
        prefix: Added in front of the field's name.
    """
    problems = []
    for item in error.errors(include_url=False, include_input=False):
        key = ".".join(str(part) for part in item["loc"])
        text = item["msg"].removeprefix("Value error, ")
        if item["type"] == "missing":
            problems.append(f"property '{prefix}{key}' is required")
        else:
            problems.append(f"property '{prefix}{key}': {text}" if key else text)
    return "; ".join(problems)


# -- configuration of a catalog --------------------------------------------------------------------


__all__ = [
    "CONFIG_FILE_VARIABLE", "SECRET_STORAGE_PATTERN", "STORAGE_OPTIONS", "STORAGE_PREFIX",
    "VENDOR_PREFIX", "CatalogConfig", "NamedCatalogs", "Property", "Seconds", "SecondsOrZero",
    "catalogs_in", "config_path", "environment", "has_variable",
    "is_visible_ascii", "load", "named_catalogs", "problems_of", "property_texts",
    "require_visible_ascii", "variable_of",
]  # fmt: skip

logger = logging.getLogger(__name__)

ENVIRONMENT_PREFIX = "LANCE_BRIDGE_"
STORAGE_OPTIONS = f"{STORAGE_PREFIX}<option>"
_FREE_KEYS = (f"{STORAGE_PREFIX}*", f"{VENDOR_PREFIX}*")
_PUBLIC_VENDOR_OPTIONS = frozenset({"vendor", "prefix", "duration_seconds"})
"""Options of every vendor."""
_FREE_VARIABLES = {"STORAGE_": STORAGE_PREFIX, "CREDENTIALS_": VENDOR_PREFIX}
"""The prefixes of options' variables, after the catalog's name, and of the options' keys."""
_ENDPOINT = re.compile(
    r"https?://([\w.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[^\s?#@]*)?", re.ASCII
)

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
"""A time limit in seconds: more than 0, and at most a day."""
SecondsOrZero = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
"""A duration in seconds, at most a day; the property defines what 0 means."""

ConfigT = TypeVar("ConfigT", bound="CatalogConfig")
TextT = TypeVar("TextT", str | None, SecretStr | None)


@cache
def public_vendor_options() -> frozenset[str]:
    """Return the options of vendors that hold no secret, as the installed vendors say."""
    public = set(_PUBLIC_VENDOR_OPTIONS)
    for class_path in vendors().values():
        module, _, attribute = class_path.rpartition(".")
        try:
            options = import_attribute(module, attribute).options_type
        except (ImportError, AttributeError):
            continue  # its options may hold secrets
        if not options.holds_secrets:
            public.update(options.model_fields)
    return frozenset(public)


@dataclass(frozen=True)
class CallerIdentity:
    """The properties with which a server's namespace acts as the principal of a request."""

    properties: Callable[[str, frozenset[str], str | None], Mapping[str, str]]
    """Returns them for the principal's name, groups and bearer token.

    Raises:
        PermissionDeniedError: (15) the catalog cannot have such a name.
        UnauthenticatedError: (16) it needs the token, which is None.
    """
    conflicts: tuple[str, ...] = ()
    """Properties that name another caller."""
    required: str | None = None
    """A property without which the catalog cannot act as another."""


class CatalogConfig(BaseModel):
    """The properties of every catalog; an adapter adds its own fields in a subclass."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True
    )

    caller_identity: ClassVar[CallerIdentity | None] = None
    """How the catalog sees who calls a server; None if it cannot."""

    root: str | None = Field(
        default=None,
        alias="root",
        examples=["s3://lake/tables"],
        description="Directory or URI under which new tables are placed, as "
        "`<root>/<namespace>.db/<table>.lance`. Without it, the namespace's own location is used.",
    )
    default_namespace: str | None = Field(
        default=None,
        alias="default-namespace",
        examples=["sales"],
        description="Namespace of tables whose identifier is a table name alone, as in LanceDB "
        "without a `namespace_path`: names joined with dots, such as `sales`. ListTables of the "
        "root lists its tables. It is not created. It is read even if the catalog does not list "
        "it.",
    )
    declare_grace: SecondsOrZero = Field(
        default=60.0,
        alias="declare.grace",
        description="How long a declared table without data is reserved for the thread that "
        "declared it. Later, any client may declare it again.",
    )
    drop_check: Literal["catalog", "entries", "namespace"] = Field(
        default="catalog",
        alias="drop.check-sharing",
        description="Which entries DropTable checks for one that shares the table's files before "
        "it deletes them: `catalog` checks every entry of the catalog, with its shallow clones and "
        "partitions; `entries` checks every entry without these; `namespace` checks the entries of "
        "the table's namespace, with their shallow clones and partitions.",
    )
    drop_retention: str = Field(
        default="0",
        alias="drop.retention",
        examples=["7d"],
        description="How long DropTable keeps a table so that it can be taken back, such as `12h` "
        "or `7d`; `0` deletes it at once. The property `drop.retention` of a namespace takes "
        "precedence.",
    )
    vendor: str | None = Field(
        default=None,
        min_length=1,
        alias="credentials.vendor",
        examples=["aws"],
        description="The vendor of credentials that are limited to one table: `aws`, `azure`, "
        "`google`, or another installed vendor. `static` returns the credentials in `storage.*`, "
        "which are valid for all tables, and `none` returns none. By default, the catalog itself "
        "vends credentials.",
    )
    allowed_roots: str | None = Field(
        default=None,
        min_length=1,
        alias="credentials.allowed_roots",
        examples=["s3://lake/tables,s3://archive"],
        description="Directories and buckets, separated by commas. A vendor makes credentials for "
        "tables inside these only. By default `root`, or the prefix of the vendor.",
    )
    credentials_check: Literal["catalog", "entries", "namespace"] = Field(
        default="catalog",
        alias="credentials.check-sharing",
        description="Which entries are checked, before a vendor makes credentials, for a location "
        "that equals, contains or is inside the table's: `catalog` checks every entry of the "
        "catalog, and in a gateway their partitions; `entries` checks every entry without these; "
        "`namespace` checks the entries of the table's namespace, and in a gateway their "
        "partitions.",
    )
    credentials_write: bool = Field(
        default=False,
        alias="credentials.write",
        description="Whether DescribeTable returns credentials to write, if any are vended. "
        "Appending to a table by its name needs them. DeclareTable and CreateTable always return "
        "them. A gateway with a vendor decides by the rights of the caller instead.",
    )
    public_options: str | None = Field(
        default=None,
        alias="credentials.public-options",
        examples=["region,endpoint"],
        description="Options of `storage.*` that responses may contain, separated by commas, with "
        "or without the prefix of the store. Responses then contain these, the credentials that "
        "are vended for the table, and no others: for a server whose clients must not get its own "
        "credentials. By default, responses contain all options and credentials.",
    )
    pickle_secrets: bool = Field(
        default=False,
        alias="pickle.secrets",
        description="Whether a pickled namespace contains its secret properties. Every option in "
        "`storage.*` is secret unless it is known not to be, such as a region or a timeout. If the "
        "pickle does not contain them, the process that loads it reads them from its environment.",
    )
    secrets_file: str | None = Field(
        default=None,
        min_length=1,
        alias="secrets.file",
        examples=["/etc/lance-bridge/secrets.yaml"],
        description="A YAML file, on each machine that connects, whose keys and values are further "
        "properties of this catalog. Properties that are passed take precedence over the file, and "
        "the file over the environment. It is read again when the server refuses the secrets.",
    )
    secrets_provider: str | None = Field(
        default=None,
        min_length=1,
        alias="secrets.provider",
        examples=["vault_secrets:read"],
        description="A function, as `module:function`, that is called with the other properties "
        "when connecting, and again when the server refuses the secrets, and returns further ones, "
        "which take precedence over `secrets.file`.",
    )
    storage: dict[str, str] = Field(
        default_factory=dict,
        alias="storage.*",
        examples=["storage.aws_region=us-east-1"],
        repr=False,
        description="Options for the object store, passed to Lance without the prefix "
        "(for example `storage.aws_region`).",
    )

    vendor_options: dict[str, str] = Field(
        default_factory=dict,
        alias="credentials.*",
        examples=["credentials.role_arn=arn:aws:iam::123456789012:role/lake"],
        repr=False,
        description="Options of the vendor, as `credentials.<option>`. With a name of your own, "
        "`credentials.<name>.vendor`, `credentials.<name>.prefix` (such as `s3://lake/raw`) and "
        "`credentials.<name>.<option>` set a vendor for the tables inside one directory; the "
        "longest prefix applies.",
    )

    _sourced: frozenset[str] = PrivateAttr(default=frozenset())
    """Keys of the properties that came from `secrets.file` or `secrets.provider`."""
    _origin: tuple[str, dict[str, Any]] = PrivateAttr(default=("", {}))
    """The implementation, and the properties that were given to `load`."""

    def __eq__(self, other: object) -> bool:
        """Compare the properties, and not where they came from."""
        return type(other) is type(self) and self.model_dump() == other.model_dump()

    __hash__ = None  # type: ignore[assignment]  # as before: its options are mappings

    @classmethod
    def declared(cls) -> tuple[Property, ...]:
        """Return the properties that this catalog takes, in the order of their declaration."""
        return declared_properties(cls)

    @classmethod
    def is_secret(cls, key: str) -> bool:
        """Return True if the value of ``key`` must not be shown."""
        if key.startswith(STORAGE_PREFIX):
            return is_secret_option(key.removeprefix(STORAGE_PREFIX))
        declared = {each.key: each.secret for each in cls.declared()}
        if key.startswith(VENDOR_PREFIX) and key not in declared:
            return key.rpartition(".")[2] not in public_vendor_options()
        return declared.get(key, False)

    @field_validator("public_options")
    @classmethod
    def _public_options_are_public(cls, text: str | None) -> str | None:
        for name in option_names(text or ""):
            if may_be_credential(name):
                raise ValueError(f"'{name[:60]}' may be a credential")
        return text

    @field_validator("drop_retention")
    @classmethod
    def _retention_is_a_time(cls, text: str) -> str:
        try:
            parse_retention(text)
        except InvalidInputError as error:
            raise ValueError(str(error)) from None
        return text

    def answered(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the storage options that a response may contain."""
        if self.public_options is None:
            return dict(options)
        return public_only(options, option_names(self.public_options))

    @property
    def sourced(self) -> frozenset[str]:
        """Keys of the properties that came from `secrets.file` or `secrets.provider`."""
        return self._sourced

    @cached_property
    def renewal(self: ConfigT) -> SecretRenewal[ConfigT]:
        """What reads the secrets again; one for all who use this object."""
        sources = {SECRETS_FILE: self.secrets_file, SECRETS_PROVIDER: self.secrets_provider}
        named = " and ".join(key for key, value in sources.items() if value is not None)
        impl, given = self._origin
        return SecretRenewal(self, named if impl else "", partial(load, type(self), impl, given))

    def secrets(self) -> set[str]:
        """Return the keys of the secret properties that have a value, except those from a source.

        A process that connects with the same properties reads the latter from that source.
        """
        declared = {
            field.alias or name
            for name, field in type(self).model_fields.items()
            if isinstance(getattr(self, name), SecretStr)
        }
        stored = {f"{STORAGE_PREFIX}{option}" for option in self.storage}
        stored |= {f"{VENDOR_PREFIX}{option}" for option in self.vendor_options}
        return (declared | {key for key in stored if self.is_secret(key)}) - self._sourced


def is_visible_ascii(text: str) -> bool:
    """Return whether a text is not empty, and only visible ASCII without spaces."""
    return bool(text) and all("!" <= each <= "~" for each in text)


def require_visible_ascii(value: TextT) -> TextT:
    """Return a value that can be sent in a header; for use as a field validator.

    Raises:
        ValueError: it is empty, or has a space or a character that is not visible ASCII.
    """
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if text is not None and not is_visible_ascii(text):
        raise ValueError("must be visible ASCII characters without spaces")
    return value


def load(config: type[ConfigT], impl: str, properties: Mapping[str, Any]) -> ConfigT:
    """Check ``properties``; complete them from their sources of secrets and the environment.

    Raises:
        InvalidInputError: (13) a key is unknown, a required one is missing, or a value is wrong.
            The message names the key and never shows a secret.
    """
    given, around = property_texts(impl, properties), environment(config, impl)
    sourced = property_texts(impl, read_secrets(impl, {**around, **given}))
    merged = {**around, **sourced, **given}
    nested: dict[str, Any] = {}
    storage: dict[str, str] = {}
    vendor: dict[str, str] = {}
    known = [each.key for each in config.declared()]
    has_vendor = merged.get("credentials.vendor") is not None
    for key, value in merged.items():
        if _is_storage_option(key):
            storage[key.removeprefix(STORAGE_PREFIX)] = value
        elif key not in known and _is_vendor_option(key, has_vendor=has_vendor):
            vendor[key.removeprefix(VENDOR_PREFIX)] = value
        else:
            nested[key] = value
    _refuse_unknown(known, impl, nested)
    _check_storage(impl, storage)
    try:
        loaded = config.model_validate({**nested, "storage.*": storage, "credentials.*": vendor})
    except ValidationError as error:
        raise invalid(f"impl={impl}: {problems_of(error)}") from None
    loaded._sourced = frozenset(sourced.keys() - given.keys())
    loaded._origin = (impl, dict(properties))
    return loaded


def _is_storage_option(key: str) -> bool:
    option = key.removeprefix(STORAGE_PREFIX)
    return option != key and option.strip() not in ("", "*")


def _is_vendor_option(key: str, *, has_vendor: bool) -> bool:
    """Return whether a key is an option of a vendor: of the catalog's, or of one for a prefix."""
    name, _, option = key.removeprefix(VENDOR_PREFIX).partition(".")
    return key.startswith(VENDOR_PREFIX) and bool(name) and (bool(option) or has_vendor)


def _check_storage(impl: str, storage: Mapping[str, str]) -> None:
    """Refuse empty values, and what makes the object store panic: line ends, bad endpoints."""
    for key, value in storage.items():
        problem = ""
        if not value.strip():
            problem = "is empty"
        elif not value.isprintable() and "service_account" not in key.lower():
            problem = "contains a line break or another control character"
        elif "endpoint" in key.lower() and not _ENDPOINT.fullmatch(value):
            problem = "must begin with http:// or https:// and a host"
        if problem:
            raise invalid(f"impl={impl}: property '{STORAGE_PREFIX}{key}' {problem}")


def _refuse_unknown(known: Sequence[str], impl: str, given: Mapping[str, Any]) -> None:
    for key in given:
        if key in known and key not in _FREE_KEYS:
            continue
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"known properties: {', '.join(known)}".replace(".*", ".<option>")
        if key.startswith(STORAGE_PREFIX) or "storage.*" in near:
            hint = f"write {STORAGE_OPTIONS}, such as storage.aws_region"
        elif near:
            hint = f"did you mean '{near[0]}'?"
        raise invalid(f"impl={impl} has no property '{key}': {hint}")


def environment(config: type[CatalogConfig], name: str) -> dict[str, str]:
    """Return the properties that the environment holds for the catalog ``name``.

    Other variables with the catalog's prefix are logged.
    """
    prefix = variable_of(name, "")
    keys = _declared_variables(config)
    found = {}
    own = {each: value for each, value in os.environ.items() if each.startswith(prefix)}
    longer = longer_names(name) if own else []
    for variable, value in own.items():
        owner = next((each for each in longer if variable.startswith(variable_of(each, ""))), None)
        if owner is not None:
            logger.warning(
                "$%s is read for the catalog '%s', and not for '%s'", variable, owner, name
            )
            continue
        rest = variable.removeprefix(prefix)
        key = _key_of(keys, rest)
        if key is not None:
            found[key] = value
            continue
        choices = [*keys, *(f"{each}<OPTION>" for each in _FREE_VARIABLES)]
        [near] = difflib.get_close_matches(rest, choices, n=1, cutoff=0)
        logger.warning(
            "$%s is not a property of the catalog '%s': did you mean $%s%s?",
            variable, name, prefix, near,
        )  # fmt: skip
    return found


def variable_of(name: str, key: str) -> str:
    """Return the environment variable for a property of the catalog ``name``."""
    return f"{ENVIRONMENT_PREFIX}{_variable(name)}_{_variable(key)}"


def has_variable(config: type[CatalogConfig], key: str) -> bool:
    """Return whether an environment variable can set a property.

    None can set ``credentials.<name>.<option>``: a variable has ``_`` for every dot.
    """
    return _key_of(_declared_variables(config), _variable(key)) == key


def _declared_variables(config: type[CatalogConfig]) -> dict[str, str]:
    return {_variable(p.key): p.key for p in config.declared() if p.key not in _FREE_KEYS}


def _key_of(declared: Mapping[str, str], variable: str) -> str | None:
    """Return the property key of a variable without its prefix, or None."""
    if variable in declared:
        return declared[variable]
    for prefix, key in _FREE_VARIABLES.items():
        if variable.startswith(prefix):
            return key + variable.removeprefix(prefix).lower()
    return None


def _variable(key: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", key).upper()
