"""Scripts of a model in the ledger environment: options of its protocol, and moves."""

from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from purestep.core import keys
from purestep.core.keys import Key
from purestep.core.language.protocol import Protocol, protocol
from purestep.properties.strategies.language import LanguageLedger, ledger, ledger_parser


@frozen
class Options:
    """Options of a protocol: the limits on steps and tool calls, and the handling of incomplete completions."""

    max_steps: int
    tool_budget: int
    incomplete: str

    def protocol(self) -> Protocol[int, LanguageLedger]:
        """Return the protocol of the ledger environment with these options."""
        return protocol(
            ledger(),
            ledger_parser(),
            system="Add.",
            max_steps=self.max_steps,
            tool_budget=self.tool_budget,
            incomplete=self.incomplete,
            incomplete_reward=-1.0,
        )


Move = tuple[str, str]  # the model's output (a key of MOVES), and the finish reason of the model call
Script = tuple[Options, list[Move]]


def options() -> SearchStrategy[Options]:
    """Options with few steps and tool calls, so that scripts reach both limits."""
    return st.builds(Options, st.integers(1, 4), st.integers(0, 2), st.sampled_from(("reject", "accept")))


def moves() -> SearchStrategy[Move]:
    """One move; moves that end the episode are rarer than others."""
    going = ("add", "add", "peek", "peek", "quiet", "babble")
    finish = ("stop", "stop", "stop", "length", "tool_call", "abort")
    return st.tuples(st.sampled_from((*going, *going, "end", "cut", "both")), st.sampled_from(finish))


def scripts() -> SearchStrategy[Script]:
    """Options, and the moves of a model in one episode."""
    return st.tuples(options(), st.lists(moves(), min_size=1, max_size=8))


def step_key(number: int) -> Key:
    """Return the key for the draws of an environment after that many completions."""
    return keys.key(number)
