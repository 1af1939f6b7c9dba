"""Reading texts, tasks with tools, turns and requests obey their laws."""

from purestep.core.language.zorplex import zorplex
from purestep.properties import check, parser_laws, protocol_laws, request_laws, zorplex_laws
from purestep.properties.language_families import own_asking, own_reading, own_turns

test_parsers = check(parser_laws(), own_reading())
test_turns = check(protocol_laws(), own_turns())
test_requests = check(request_laws(), own_asking())
test_zorplex = check(zorplex_laws(), zorplex)
