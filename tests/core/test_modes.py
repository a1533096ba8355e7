"""Modes of requests, in the spellings that clients use."""

from __future__ import annotations

from enum import Enum

import pytest
from lance_namespace.errors import InvalidInputError

from lance_bridge.entries.modes import CreateMode, DropBehavior, DropMode, RegisterMode, parse

ALL = [mode for kind in (CreateMode, RegisterMode, DropMode, DropBehavior) for mode in kind]


@pytest.mark.parametrize("mode", ALL)
def test_a_mode_is_known_in_any_case(mode: Enum) -> None:
    word = str(mode.value)
    for text in (word, word.lower(), word.upper(), word.swapcase()):
        assert parse(type(mode), text, next(iter(type(mode)))) is mode


@pytest.mark.parametrize("text", ["ExistOk", "exist_ok", "EXIST_OK", "existok", "Exist_Ok"])
def test_a_mode_of_two_words_may_be_in_snake_case(text: str) -> None:
    assert parse(CreateMode, text, CreateMode.CREATE) is CreateMode.EXIST_OK


@pytest.mark.parametrize("default", list(CreateMode))
def test_without_a_mode_the_default_counts(default: CreateMode) -> None:
    assert parse(CreateMode, None, default) is default


@pytest.mark.parametrize(
    "text",
    ["", " ", "create ", "exist-ok", "replace", "Skip", "_" * 99, "0"]
    + ["c_r_e_a_t_e", "_create", "create_", "exist__ok", "existo_k", "over_write"],
)
def test_an_unknown_mode_is_invalid_and_the_known_ones_are_named(text: str) -> None:
    with pytest.raises(InvalidInputError, match="one of Create, ExistOk, Overwrite") as caught:
        parse(CreateMode, text, CreateMode.CREATE)
    assert repr(text[:60]) in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_mode_of_another_operation_is_unknown() -> None:
    for kind, text in ((RegisterMode, "ExistOk"), (DropMode, "Cascade"), (DropBehavior, "Fail")):
        with pytest.raises(InvalidInputError, match="Unknown mode"):
            parse(kind, text, next(iter(kind)))
