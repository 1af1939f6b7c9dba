"""Laws, strategies and mutants for reinforcement learning written as pure steps: for users' code as for our own.

    from purestep.properties import check, env_laws
    test_my_world = check(env_laws, my_world())        # pytest: test_my_world[inputs_stay], test_my_world[batch_is_singles], ...
    print(verify(env_laws, my_world()))                # the same without pytest
"""

from .check import check, verify
from .step_laws import step_laws
from .strategies import dyadic
