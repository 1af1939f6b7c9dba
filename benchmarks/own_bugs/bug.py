"""A bug from a public thread: the code that has it, a twin that has not, and an input on which they differ."""

from collections.abc import Callable
from typing import Any

from attrs import frozen


@frozen
class Bug:
    """`bug` and `twin` are functions, classes or modules with one signature. `shown(subject)` gives what tells them apart."""

    name: str
    link: str  # the thread
    family: str
    about: str  # one sentence
    bug: Any
    twin: Any
    shown: Callable[[Any], object]
