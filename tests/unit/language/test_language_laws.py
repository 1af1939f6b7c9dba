"""Reading texts, tasks with tools, turns and requests obey their laws."""

from purestep.core import keys
from purestep.core.language.codec import byte_codec
from purestep.core.language.parsers import answer
from purestep.core.language.pass_at_k import pass_at_k
from purestep.core.language.text_env import Outcome, TextEnv
from purestep.core.language.zorplex.env import Reward, ZorplexState, zorplex, zorplex_parser
from purestep.core.language.zorplex.tasks import ZorplexTask
from purestep.properties import check, codec_laws, parser_laws, text_env_laws
from purestep.properties.framework.families import own_reading, own_world_laws
from purestep.properties.strategies.language import ledger

from ...laws.language.attempt import attempt_laws
from ...laws.language.curriculum import curriculum_laws
from ...laws.language.families import own_asking, own_calls, own_curriculum, own_trying, own_turns
from ...laws.language.pass_at_k import pass_at_k_laws
from ...laws.language.protocol import protocol_laws
from ...laws.language.request import request_laws
from ...laws.language.tool_calls import tool_call_laws
from ...laws.language.zorplex import zorplex_laws

test_parsers = check(parser_laws(), own_reading())
test_turns = check(protocol_laws(), own_turns())
test_requests = check(request_laws(), own_asking())
test_zorplex = check(zorplex_laws(), zorplex)
test_attempts = check(attempt_laws(), own_trying())
test_pass_at_k = check(pass_at_k_laws(), pass_at_k)
test_curriculum = check(curriculum_laws(), own_curriculum())
test_tool_calls = check(tool_call_laws(), own_calls())
test_codecs = check(codec_laws(), byte_codec())
test_ledger = check(own_world_laws(), ledger())
MOVES = ("LOOKUP[quomun]", "LOOKUP[shiyor]", "[ANSWER] 5")
test_zorplex_as_a_world = check(
    text_env_laws(zorplex_parser(), *MOVES, classes=(ZorplexState, ZorplexTask, Reward)), zorplex()
)
ONE_STEP: TextEnv[tuple[()], int] = TextEnv(
    (),
    lambda _, key: (0, f"{int(keys.randint(key, (), 0, 10))}?"),
    lambda _, state, said, key: (said.value, Outcome(reward=float(said.value == state), terminated=True)),
)
test_a_world_of_one_step = check(text_env_laws(answer(), "[ANSWER] 5", "[ANSWER] 0"), ONE_STEP)
