"""Every lowering of our scan is the loop it stands for."""

from collections.abc import Callable
from typing import Any

import pytest

from purestep.core.scan import scan
from purestep.properties import check, scan_laws, verify
from purestep.properties.framework.compiling import Compiled
from purestep.properties.suites.scan import Scan

LENGTHS = (4,)


def compiled_scan(lowering: str, unroll: int, backend: str) -> Scan:
    """A scan that compiles itself, once for each step, direction and shape."""
    programs: dict[tuple[Any, bool], Compiled] = {}

    def lowered(
        step: Callable[..., Any], init: Any, xs: Any, length: int | None = None, *, reverse: bool = False
    ) -> tuple[Any, Any]:
        def fold(init: Any, xs: Any) -> tuple[Any, Any]:
            return scan(step, init, xs, reverse=reverse, lowering=lowering, unroll=unroll)

        program = programs.setdefault((step, reverse), Compiled(fold, backend))
        result: tuple[Any, Any] = program(init, xs)
        return result

    return lowered


eager_refusal = {"refuses_a_changed_carry": "a compiler wraps what is raised while it traces"}

test_python = check(scan_laws(), scan)
test_compiled_loop = pytest.mark.slow(
    check(scan_laws(LENGTHS), compiled_scan("python", 1, "eager"), skip=eager_refusal)
)


@pytest.mark.slow
@pytest.mark.parametrize("unroll", [1, 2])
def test_compiled_operator(unroll: int) -> None:
    report = verify(scan_laws(LENGTHS), compiled_scan("higher_order", unroll, "aot_eager"), skip=eager_refusal)
    assert report, str(report)
