"""Check that printed counterexamples can be pasted: each that the matrix of laws and mutants produces is evaluated.

python -m purestep.properties.framework.paste [--suite estimator_laws] [--families tests.laws.families:families]
"""

import argparse
import sys
import time
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

from attrs import frozen

from ...core.errors import describe_error
from .matrix import FAMILIES, families_of, laws_here, write_figures
from .profiles import named_profile
from .report import BROKEN
from .run import run
from .source import source


@frozen
class Pasted:
    """A printed counterexample, and the reason why it cannot be pasted; "" if it can."""

    suite: str
    law: str
    edit: str
    text: str
    fault: str


def pasted(suites: Container[str] = (), *, families: str = FAMILIES) -> Iterator[Pasted]:
    """Yield the counterexample of each law and its own mutant, with the result of evaluating it below its imports."""
    profile = named_profile("quick")
    for family in families_of(families):
        if (suites and family.suite.name not in suites) or family.night:
            continue
        for law in laws_here(family, profile).suite:
            result = run(law, law.mutant.make(family.subject), profile=profile)
            if result.outcome == BROKEN and result.inputs:
                fault = paste_fault(result.inputs, result.imports)
                yield Pasted(family.suite.name, law.name, law.mutant.edit, result.inputs, fault)


def paste_fault(text: str, imports: Sequence[str]) -> str:
    """Return why a printed value cannot be pasted: "" if its source evaluates, and the result prints as the same source.

    >>> paste_fault("torch.tensor([0.5])", ["import torch"])
    ''
    >>> paste_fault("Walk(seed=0)", [])
    "NameError: name 'Walk' is not defined"
    """
    names: dict[str, object] = {}
    try:
        exec("\n".join(imports), names)
        value = eval(text, names)
    except Exception as error:
        return describe_error(error)
    return "" if source(value)[0] == text else f"it prints as {source(value)[0][:200]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the counterexamples that cannot be pasted, and counts; return 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m purestep.properties.framework.paste", description=main.__doc__)
    parser.add_argument("--families", default=FAMILIES, help="module:function")
    parser.add_argument("--suite", action="append", help="only this suite; may be given more than once")
    parser.add_argument("--out", type=Path, help="a JSON file for commit, command, seconds and figures")
    options = parser.parse_args(arguments)
    start, printed, wrong = time.perf_counter(), 0, list[str]()
    for one in pasted(options.suite or (), families=options.families):
        printed += 1
        if one.fault:
            wrong.append(f"{one.suite} {one.law}: {one.fault}")
            print(f"{wrong[-1]}\n    {one.text[:300]}", flush=True)
    print(f"{printed - len(wrong)} of {printed} counterexamples can be pasted")
    if options.out:
        result = {"counterexamples": printed, "pasted": printed - len(wrong), "faults": wrong}
        write_figures(options.out, "paste", arguments, time.perf_counter() - start, result)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
