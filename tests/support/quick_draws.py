"""Number of draws with which the quick tests try laws on correct objects."""

from attrs import evolve

from purestep.properties.framework.profiles import named_profile

# 19 of 20 laws catch their own mutant within so many draws; in test_mutants the others get as many as they need
FEWER = evolve(named_profile("quick"), examples=6)
