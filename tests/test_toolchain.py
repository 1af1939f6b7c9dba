"""hurried: what it changes while it holds, it changes back."""

import gc

import pytest
import torch._inductor.codecache as codecache

from purestep.runtime.effects.toolchain import hurried


@pytest.mark.parametrize("collects", [True, False])
def test_all_is_as_before_once_compiling_ended_or_failed(collects: bool) -> None:
    worker, before = codecache._worker_compile_cpp, gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with hurried():
            assert not gc.isenabled()
            assert codecache._worker_compile_cpp is not worker
        assert gc.isenabled() == collects
        with pytest.raises(ZeroDivisionError), hurried():
            raise ZeroDivisionError
        assert gc.isenabled() == collects
        assert codecache._worker_compile_cpp is worker
    finally:
        (gc.enable if before else gc.disable)()
