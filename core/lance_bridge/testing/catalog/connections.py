"""Cases: connections are described, shared between threads, closed and used again."""

from __future__ import annotations

import time

from lance_namespace import ErrorCode

from ...catalog import NamespaceRecord, TableRecord
from ..cases import needs
from ..concurrency import THREADS, answers_only, check_one_winner, race
from ..expect import refused
from .workspace import CatalogCases, Workspace, require_same, skip_if


class ConnectionCases(CatalogCases):
    """One catalog object, and several of them."""

    def test_equal_connections_are_described_alike(self, workspace: Workspace) -> None:
        text = workspace.catalog.describe_connection()
        assert isinstance(text, str)
        assert text, "the description is empty"
        assert workspace.connect().describe_connection() == text

    @needs("other_catalog")
    def test_other_connections_are_described_otherwise(self, workspace: Workspace) -> None:
        other = workspace.target.other_catalog()
        assert other.describe_connection() != workspace.catalog.describe_connection()

    @needs("secrets")
    def test_descriptions_hold_no_secret(self, workspace: Workspace) -> None:
        server = workspace.catalog.describe_server()
        shown = [
            workspace.catalog.describe_connection(),
            repr(workspace.catalog),
            *(f"{key}={value}" for key, value in server.items()),
        ]
        for secret in workspace.target.secrets:
            assert not [text for text in shown if secret in text], "a secret is shown"

    def test_the_server_is_described_by_texts(self, workspace: Workspace) -> None:
        for key, value in workspace.catalog.describe_server().items():
            assert isinstance(key, str)
            assert isinstance(value, str)

    # -- life ------------------------------------------------------------------------------------

    def test_a_closed_catalog_can_be_used_again(self, workspace: Workspace) -> None:
        record = workspace.create()
        for _ in range(2):
            workspace.catalog.close()
            workspace.catalog.close()
            require_same(workspace.catalog.load_table(record.path), record)
        workspace.catalog.close()
        workspace.catalog.drop_table(record)
        assert workspace.names() == []

    def test_a_catalog_that_was_never_used_can_be_closed(self, workspace: Workspace) -> None:
        workspace.connect().close()

    def test_other_connections_see_a_change_at_once(self, workspace: Workspace) -> None:
        other = workspace.connect()
        assert list(other.list_tables(workspace.path)) == []
        record = workspace.create()
        require_same(other.load_table(record.path), record)
        assert list(other.list_tables(workspace.path)) == ["t"]
        if not workspace.capabilities.no_alter:
            changed = workspace.set(record, author="Ines")
            require_same(other.load_table(record.path), changed)
            record = changed
        other.drop_table(record)
        assert workspace.names() == []

    def test_other_connections_see_a_change_of_a_namespace_at_once(
        self, workspace: Workspace
    ) -> None:
        skip_if(workspace, "no_namespace_changes")
        other, path = workspace.connect(), workspace.new_namespace({"a": "1"})
        assert other.load_namespace(path).properties["a"] == "1"
        assert path[-1] in other.list_namespaces(path[:-1])
        record = workspace.catalog.load_namespace(path)
        workspace.catalog.alter_namespace(
            NamespaceRecord(path, {**record.properties, "a": "2"}, record.location)
        )
        assert other.load_namespace(path).properties["a"] == "2"
        workspace.catalog.drop_namespace(path)
        with refused(ErrorCode.NAMESPACE_NOT_FOUND):
            other.load_namespace(path)
        assert path[-1] not in other.list_namespaces(path[:-1])

    # -- threads ---------------------------------------------------------------------------------

    def test_each_thread_is_answered_about_its_own_table(self, workspace: Workspace) -> None:
        def work(number: int) -> list[str]:
            wanted = workspace.record(f"t{number}", {"number": str(number)})
            workspace.catalog.create_table(wanted)
            found = [workspace.catalog.load_table(wanted.path) for _ in range(5)]
            return [record.properties["number"] for record in found]

        answers = answers_only(race(work))
        assert answers == [[str(number)] * 5 for number in range(THREADS)]
        assert workspace.names() == sorted(f"t{number}" for number in range(THREADS))

    def test_of_many_creators_of_a_table_one_succeeds(self, workspace: Workspace) -> None:
        records = [workspace.record("t", {"number": str(n)}) for n in range(THREADS)]
        answers = race(lambda number: workspace.catalog.create_table(records[number]))
        winner = check_one_winner(answers, ErrorCode.TABLE_ALREADY_EXISTS)
        found = workspace.catalog.load_table(workspace.table())
        assert found.properties["number"] == str(winner)
        assert workspace.names() == ["t"]

    # -- credentials -----------------------------------------------------------------------------

    def test_vended_credentials_are_options_that_say_when_they_end(
        self, workspace: Workspace
    ) -> None:
        for record in (workspace.create(), workspace.record("later")):
            for write in (False, True):
                options = workspace.catalog.vend_credentials(record, write=write)
                for key, value in (options or {}).items():
                    assert isinstance(key, str)
                    assert isinstance(value, str)
                expires = (options or {}).get("expires_at_millis")
                if expires is not None:
                    assert int(expires) > time.time() * 1000, "the credentials have ended"

    @needs("grants")
    def test_vended_credentials_are_for_their_own_table(self, workspace: Workspace) -> None:
        records: list[TableRecord] = [workspace.create("one"), workspace.create("two")]
        records.append(workspace.record("declared"))
        grants = workspace.target.grants
        for record in records:
            location = record.location or ""
            for write in (False, True):
                options = workspace.catalog.vend_credentials(record, write=write)
                assert options is not None, "the target says what is granted; nothing was"
                assert grants(options, location, write=write)
                assert write or not grants(options, location, write=True), "readers may write"
                for other in records:
                    if other is not record:
                        assert not grants(options, other.location or "", write=False)

    @needs("grants")
    def test_credentials_are_for_the_table_that_has_the_name_now(
        self, workspace: Workspace
    ) -> None:
        catalog, first = workspace.catalog, workspace.create("t")
        catalog.vend_credentials(first, write=False)
        catalog.drop_table(first)
        catalog.create_table(workspace.record("t", location=workspace.location("elsewhere")))
        second = catalog.load_table(first.path)
        options = catalog.vend_credentials(second, write=False)
        assert options is not None, "the target says what is granted; nothing was"
        assert workspace.target.grants(options, second.location or "", write=False)
