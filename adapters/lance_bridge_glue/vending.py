"""Storage options for tables in S3: the catalog's own credentials, or Lake Formation's."""

from __future__ import annotations

from botocore.exceptions import ClientError
from lance_namespace.errors import PermissionDeniedError

from lance_bridge.catalog import TableCredentials, TableRecord
from lance_bridge.credentials import EXPIRES_AT
from lance_bridge.errors import display
from lance_bridge.storage_options import authentication, options_of_store

from .calls import ask
from .config import GlueConfig
from .errors import ABSENT, is_a, safe_cause, translate_errors
from .session import Session

_SCHEMES = ("s3", "s3a", "s3n")
_READ = ("SELECT",)
_WRITE = ("SELECT", "INSERT", "DELETE")


class StorageCredentials:
    """Vends credentials for storage. Options in `storage.*` take precedence."""

    def __init__(self, config: GlueConfig, session: Session) -> None:
        self._config = config
        self._session = session
        given = options_of_store(config.storage, "aws")
        self._has_credentials = bool(authentication(given))
        names_region = bool(given.keys() & {"region", "default_region"})
        self._region = {} if names_region else {"aws_region": session.region}
        self._names_endpoint = bool(given.keys() & {"endpoint", "endpoint_url"})

    def vend(self, record: TableRecord, *, write: bool) -> dict[str, str] | None:
        """Return options for a table's location, or None.

        Without credentials in the properties, Lance looks them up itself, in the same places as
        AWS's tools; it gets the place of the buckets if they are not where Lance looks.
        """
        scheme = (record.location or "").partition(":")[0].lower()
        if scheme not in _SCHEMES:
            return None
        if self._has_credentials:
            return self._place() or None
        what = f"get credentials for the files of table '{display(record.path)}'"
        with translate_errors(what):
            if self._config.lake_formation:
                vended = self._from_lake_formation(record, write=write)
                if vended is not None:
                    return vended
            if not self._config.names_credentials:
                return self._place() or None
            frozen, expires = self._session.storage_credentials()
            return self._options(frozen.access_key, frozen.secret_key, frozen.token, expires)

    def _from_lake_formation(self, record: TableRecord, *, write: bool) -> dict[str, str] | None:
        """Return Lake Formation's credentials for the table; None if the table does not exist.

        Source: GetTemporaryGlueTableCredentials.
        """
        client = self._session.client("lakeformation", self._config.lake_formation_endpoint)
        try:
            response = ask(
                client,
                "get_temporary_glue_table_credentials",
                ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"),
                TableArn=self._arn(record),
                Permissions=list(_WRITE if write else _READ),
                DurationSeconds=self._config.lake_formation_duration,
                SupportedPermissionTypes=["COLUMN_PERMISSION"],
            )
        except ClientError as error:
            if not is_a(error, ABSENT):
                raise
            if record.identity is None:
                return None  # the table is about to be created
            raise PermissionDeniedError(
                f"There are no credentials for the files of table '{display(record.path)}': Lake "
                "Formation does not know the table. It may have been dropped concurrently"
            ) from safe_cause(error)
        return TableCredentials(
            self._options(
                response["AccessKeyId"],
                response["SecretAccessKey"],
                response["SessionToken"],
                int(response["Expiration"].timestamp() * 1000),
            )
        )

    def _arn(self, record: TableRecord) -> str:
        account = f"{self._session.region}:{self._config.catalog_id}"
        table = "/".join(record.link_path or record.path)
        return f"arn:{self._session.partition()}:glue:{account}:table/{table}"

    def _options(
        self, key: str, secret: str, token: str | None, expires: int | None
    ) -> dict[str, str]:
        options = {"aws_access_key_id": key, "aws_secret_access_key": secret}
        if token:
            options["aws_session_token"] = token
        options |= {**self._region, **self._place()}
        if expires is not None:
            options[EXPIRES_AT] = str(expires)
        return options

    def _place(self) -> dict[str, str]:
        """Return where the buckets are, if Lance would look elsewhere."""
        endpoint = {} if self._names_endpoint else self._session.storage_endpoint()
        return {**endpoint, **self._region} if endpoint else {}
