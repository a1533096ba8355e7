"""What access boundaries allow: their own table's objects, and no others, whatever the names."""

from __future__ import annotations

import sys

import pytest
from adapters.vendors.hostile import COUNTS, is_own, locations, other_keys, own_keys
from lance_namespace.errors import InvalidTableStateError

from lance_bridge_vendors.google import GoogleOptions, GoogleVendor
from lance_bridge_vendors.google_boundary import MAX_CHARACTERS, access_boundary, conditions

from .building import BUCKET, WRITERS_FILES, batch_files, grant

if sys.version_info < (3, 11):
    pytest.skip("cel-expr-python is for Python 3.11 and later", allow_module_level=True)

from .cel import Boundary, condition, holds

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#vending-rules")]

PREFIX = "lake/films.db/reels.lance"


def boundary(**changes: object) -> Boundary:
    return Boundary(access_boundary(grant(store="gs", **changes)), BUCKET)


# -- the evaluation itself, by Google's examples ---------------------------------------------------


@pytest.mark.spec("common.md#limits-of-vendors")
@pytest.mark.parametrize(
    ("resource", "prefix", "expected"),
    [
        ("projects/_/buckets/example-bucket/objects/customer-a/invoice.pdf", None, True),
        ("projects/_/buckets/example-bucket/objects/customer-b/invoice.pdf", None, False),
        ("projects/_/buckets/example-bucket/objects/x/customer-a", None, False),
        ("projects/_/buckets/example-bucket", "customer-a/", True),
        ("projects/_/buckets/example-bucket", "customer-b/", False),
        ("projects/_/buckets/example-bucket", None, False),
    ],
)
def test_conditions_hold_as_in_the_documentation(
    resource: str, prefix: str | None, expected: bool
) -> None:
    """Source: "Limit permissions for specific objects" and "… when listing objects"."""
    compiled = condition(
        "resource.name.startsWith('projects/_/buckets/example-bucket/objects/customer-a') || "
        "api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('customer-a')"
    )
    assert holds(compiled, resource, prefix) is expected


# -- rights ----------------------------------------------------------------------------------------


def test_readers_get_and_list_and_writers_also_create_and_delete() -> None:
    reader, writer = boundary(write=False), boundary()
    key = f"{PREFIX}/data/1.lance"
    assert reader.allows("get", key)
    assert writer.allows("get", key)
    for permission in ("create", "delete"):
        assert not reader.allows(permission, key)
        assert writer.allows(permission, key)


def test_nobody_changes_who_may_read_an_object() -> None:
    roles = [
        rule["availablePermissions"]
        for write in (True, False)
        for rule in access_boundary(grant(write=write))["accessBoundary"]["accessBoundaryRules"]
    ]
    assert roles == [["inRole:roles/storage.objectUser"], ["inRole:roles/storage.objectViewer"]]


@pytest.mark.parametrize("write", [True, False])
def test_a_table_is_listed_and_what_begins_with_its_name_is_not(write: bool) -> None:
    limited = boundary(write=write)
    assert limited.lists(f"{PREFIX}/")
    assert limited.lists(f"{PREFIX}/_versions/")
    for other in (None, "", "lake/", PREFIX, f"{PREFIX}2/"):
        assert not limited.lists(other)


def test_writers_of_a_governed_table_cannot_create_a_version() -> None:
    governed, free = (boundary(governed=each) for each in (True, False))
    staged = f"{PREFIX}/_versions/18446744073709551614.manifest-66aac37b-adee-470b-ad57-b83dceeb1"
    for key in (staged, *(f"{PREFIX}/{each}" for each in WRITERS_FILES)):
        assert governed.allows("create", key)
    for final in ("_versions/1.manifest", "tree/b/_versions/1.manifest"):
        assert not governed.allows("create", f"{PREFIX}/{final}")
        assert governed.allows("get", f"{PREFIX}/{final}")
        assert free.allows("create", f"{PREFIX}/{final}")
    assert governed.lists(f"{PREFIX}/_versions/")


@pytest.mark.spec("server.md#governed-commits")
@pytest.mark.parametrize("path", batch_files())
def test_writers_of_a_governed_table_cannot_decide_on_a_batch(path: str) -> None:
    governed, free = (boundary(governed=each) for each in (True, False))
    for permission in ("create", "delete", "update"):
        assert not governed.allows(permission, f"{PREFIX}/{path}")
        assert free.allows(permission, f"{PREFIX}/{path}")
    assert governed.allows("get", f"{PREFIX}/{path}")


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", COUNTS)
def test_no_name_reaches_an_object_outside_its_table_or_fails_to_reach_its_own(count: int) -> None:
    outside = 0
    for number, (location, place) in enumerate(locations(count, "gs")):
        made = access_boundary(
            grant(bucket=place.bucket, prefix=place.prefix, governed=number % 2 == 0)
        )
        limited = Boundary(made, place.bucket)
        for key in own_keys(place.prefix):
            assert limited.allows("create", key), location
        assert limited.lists(f"{place.prefix}/"), location
        for key in other_keys(place.prefix, number):
            if not is_own(place.prefix, key):
                outside += 1
                assert not limited.allows("get", key), (location, key)
                assert not limited.lists(key), (location, key)
    assert outside > 5 * count


def test_a_location_that_no_condition_can_hold_is_refused_and_nothing_wider_asked() -> None:
    vendor = GoogleVendor(GoogleOptions(sts_endpoint="http://127.0.0.1:1"), {})
    long = grant(prefix='a"' * 700)
    assert max(map(len, conditions(access_boundary(long)))) > MAX_CHARACTERS
    with pytest.raises(InvalidTableStateError, match="too long for a condition"):
        vendor.vend(long)
