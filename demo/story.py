"""Prints the demo: numbered steps, the call of each, and its result."""

from __future__ import annotations

import textwrap
import time

_WIDTH = 96


class Story:
    """Prints steps, and checks what they claim."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.steps = 0
        self.checks = 0

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def step(self, title: str, why: str = "") -> None:
        """Begin the next step; ``why`` says what it is for."""
        self.steps += 1
        print(f"\n{self.steps}. {title}", flush=True)
        if why:
            print(textwrap.fill(why, _WIDTH, initial_indent="   ", subsequent_indent="   "))

    def call(self, code: str) -> None:
        """Print the call."""
        print(textwrap.indent(textwrap.dedent(code).strip("\n"), "     >>> ", bool), flush=True)

    def result(self, text: object) -> None:
        """Print the result."""
        print(textwrap.indent(str(text), "         "), flush=True)

    def check(self, what: str, actual: object, expected: object) -> None:
        """Print that two values are equal, or end the demo.

        Raises:
            AssertionError: They differ; the message has both.
        """
        if actual != expected:
            raise AssertionError(f"{what}: expected {expected!r}, got {actual!r}")
        self.checks += 1
        print(f"     ok  {what}: {actual}", flush=True)
