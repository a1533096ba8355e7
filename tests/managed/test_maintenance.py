"""Runs of maintenance on real catalogs: a lease is a compare-and-set there."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import ConcurrentModificationError
from managed.conftest import GLUE, NewTable

from lance_bridge.dataset import Action, plan_maintenance, run_maintenance
from lance_bridge.managed.lease import leased
from lance_bridge.records import GUARD, LEASE

pytestmark = [pytest.mark.servers, pytest.mark.spec("common.md#running-maintenance")]


@pytest.mark.parametrize("is_managed", [True, False], ids=["managed", "in storage"])
@pytest.mark.parametrize("catalog", ["2.3", "4.2", GLUE])
def test_one_worker_at_a_time_maintains_a_table(
    catalog: str, new_table: NewTable, *, is_managed: bool
) -> None:
    made = new_table(catalog)
    with made.connect() as namespace:
        table = namespace.tables.load_by_id(made.id)
        rows: pa.Table = table.open().to_table()
        if not is_managed:
            table.release()
        for _ in range(3):
            lance.write_dataset(rows, namespace_client=namespace, table_id=made.id, mode="append")
        table = namespace.tables.load_by_id(made.id)
        table.change_properties({"maintenance.min_fragments": "3"}, ())
        table = namespace.tables.load_by_id(made.id)
        with leased(table) as lease:
            assert LEASE in made.entry(made.id)
            with pytest.raises(ConcurrentModificationError), leased(table):
                pass
            lease.check()
        plan = plan_maintenance(namespace.tables, tuple(made.id[:-1]))
        [done] = run_maintenance(namespace.tables, plan)
        assert (done.reason, done.actions) == ("", (Action.COMPACT,))
        parameters = made.entry(made.id)
        assert LEASE not in parameters
        assert (GUARD in parameters) is is_managed
        after = namespace.tables.load_by_id(made.id).open()
        assert (after.count_rows(), len(after.get_fragments())) == (4, 1)
