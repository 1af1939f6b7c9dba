"""Reading texts, tasks with tools, turns and requests obey their laws."""

from purestep.core.language.codec import byte_codec
from purestep.core.language.tasks import Task
from purestep.core.language.zorplex import Play, Reward, zorplex, zorplex_parser
from purestep.properties import (
    attempt_laws,
    check,
    codec_laws,
    parser_laws,
    protocol_laws,
    request_laws,
    text_env_laws,
    zorplex_laws,
)
from purestep.properties.language_families import own_asking, own_reading, own_trying, own_turns, own_world_laws
from purestep.properties.language_strategies import ledger

test_parsers = check(parser_laws(), own_reading())
test_turns = check(protocol_laws(), own_turns())
test_requests = check(request_laws(), own_asking())
test_zorplex = check(zorplex_laws(), zorplex)
test_attempts = check(attempt_laws(), own_trying())
test_codecs = check(codec_laws(), byte_codec())
test_ledger = check(own_world_laws(), ledger())
MOVES = ("LOOKUP[quomun]", "LOOKUP[shiyor]", "[ANSWER] 5")
test_zorplex_as_a_world = check(text_env_laws(zorplex_parser(), *MOVES, classes=(Play, Task, Reward)), zorplex())
