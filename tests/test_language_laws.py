"""Reading texts, tasks with tools, turns and requests obey their laws."""

from purestep.core.language.codec import byte_codec
from purestep.core.language.zorplex import zorplex
from purestep.properties import (
    attempt_laws,
    check,
    codec_laws,
    parser_laws,
    protocol_laws,
    request_laws,
    zorplex_laws,
)
from purestep.properties.language_families import own_asking, own_reading, own_trying, own_turns

test_parsers = check(parser_laws(), own_reading())
test_turns = check(protocol_laws(), own_turns())
test_requests = check(request_laws(), own_asking())
test_zorplex = check(zorplex_laws(), zorplex)
test_attempts = check(attempt_laws(), own_trying())
test_codecs = check(codec_laws(), byte_codec())
