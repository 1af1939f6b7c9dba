"""An actor for `engines`: it answers, and says which process it is."""

import os


class Echo:
    """Answers at once; imports nothing, so that what is measured is the engine."""

    def setup(self) -> None:
        """Nothing heavy."""

    def echo(self, value: object) -> object:
        """The value."""
        return value

    def pid(self) -> int:
        """The member's process."""
        return os.getpid()
