"""Modes of requests, in the spellings that clients use."""

from __future__ import annotations

import pytest
from lance_namespace.errors import InvalidInputError

from lance_bridge.requests import CreateMode, DropBehavior, DropMode, RegisterMode, parse_mode

ALL = [mode for kind in (CreateMode, RegisterMode, DropMode, DropBehavior) for mode in kind]


def test_a_mode_is_known_in_any_case_and_of_two_words_in_snake_case() -> None:
    for mode in ALL:
        word = str(mode.value)
        for text in (word, word.lower(), word.upper(), word.swapcase()):
            assert parse_mode(type(mode), text, next(iter(type(mode)))) is mode
    for text in ("ExistOk", "exist_ok", "EXIST_OK", "existok", "Exist_Ok"):
        assert parse_mode(CreateMode, text, CreateMode.CREATE) is CreateMode.EXIST_OK
    for default in CreateMode:
        assert parse_mode(CreateMode, None, default) is default


UNKNOWN = ["", " ", "create ", "exist-ok", "replace", "Skip", "_" * 99, "0", "c_r_e_a_t_e"]
UNKNOWN += ["_create", "create_", "exist__ok", "existo_k", "over_write"]


def test_an_unknown_mode_is_invalid_and_the_known_ones_are_named() -> None:
    for text in UNKNOWN:
        with pytest.raises(InvalidInputError, match="one of Create, ExistOk, Overwrite") as caught:
            parse_mode(CreateMode, text, CreateMode.CREATE)
        assert repr(text[:60]) in str(caught.value)
        assert len(str(caught.value)) < 200
    for kind, text in ((RegisterMode, "ExistOk"), (DropMode, "Cascade"), (DropBehavior, "Fail")):
        with pytest.raises(InvalidInputError, match="Unknown mode"):
            parse_mode(kind, text, next(iter(kind)))
