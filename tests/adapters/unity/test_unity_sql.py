"""SQL text: no name and no value can end its quotes, whatever is in it."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from servers.unity import sql as spark

from lance_bridge.names import quoted
from lance_bridge_unity import sql

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NASTY = st.text(st.sampled_from("'\"\\`$;-\n\r\t\0{}() u0027/*"), max_size=30)
TEXTS = st.one_of(ANY_TEXT, NASTY)
NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40
)


@given(TEXTS)
@example("'); DROP TABLE x; --")
@example("\\")
@example("\\'")
@example("${system:user.name}")
def test_a_literal_has_no_character_that_could_end_it_or_mean_anything(text: str) -> None:
    inside = sql.literal(text)[1:-1]
    # Every backslash begins one of our own escapes; what is left has nothing to escape with.
    rest = re.sub(r"\\u[0-9a-f]{4}", "", inside)
    assert not set(rest) & set("'\"\\`$;\n\r\t\0")


@given(TEXTS)
def test_a_literal_is_read_back_as_the_text_that_it_was_made_of(text: str) -> None:
    statement = spark.parse(f"ALTER TABLE t SET LOCATION {sql.literal(text)}")
    assert statement == spark.SetLocation(("t",), text)


@given(st.lists(NAMES, min_size=1, max_size=3))
@example(["`", "``", "a`.`b"])
@example(["a`; DROP TABLE b; --"])
def test_an_identifier_is_read_back_as_the_names_that_it_was_made_of(names: list[str]) -> None:
    statement = spark.parse(f"DROP TABLE {quoted(names)}")
    assert statement == spark.DropTable(tuple(names))


@given(NAMES, ANY_TEXT, st.dictionaries(TEXTS, TEXTS, max_size=4))
def test_a_create_statement_holds_what_it_was_given_and_nothing_more(
    name: str, location: str, properties: dict[str, str]
) -> None:
    path = ("c", "s", name)
    assert spark.parse(sql.create_table(path, location, properties)) == spark.CreateTable(
        path, "TEXT", location, properties=tuple(properties.items())
    )


@pytest.mark.parametrize(
    ("made", "meant"),
    [
        (
            sql.set_properties(("c", "s", "t"), {"k": "v", "x": "it's"}),
            spark.SetProperties(("c", "s", "t"), (("k", "v"), ("x", "it's"))),
        ),
        (
            sql.unset_properties(("c", "s", "t"), ["k", "o'k"]),
            spark.UnsetProperties(("c", "s", "t"), ("k", "o'k"), if_exists=True),
        ),
        (
            sql.rename_table(("c", "s", "t"), ("c", "s", "u`")),
            spark.RenameTable(("c", "s", "t"), ("c", "s", "u`")),
        ),
    ],
)
def test_statements_say_what_they_should(made: str, meant: spark.Statement) -> None:
    assert spark.parse(made) == meant
