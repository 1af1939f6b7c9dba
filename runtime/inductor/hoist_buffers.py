"""Hoisting in compiled loops: moves invariant parts out of the loop, that is, the memory of its temporaries, and views of it.

The compiler's C++ allocates every temporary in every iteration, which takes half of the time of a small step. A temporary can
keep its memory if nothing that outlives the iteration can share it. This parses the C++ line by line and is conservative: every
line it does not recognise counts as sharing the memory of all names in it. The price: a loop holds its temporaries as long as
it runs.
"""

import re
from collections.abc import Iterable, Sequence

from attrs import define, field

NAME = re.compile(r"\b(?:\w*buf\d+(?:_input_\d+)?|\w*arg\d+_1|tmp_\w+?)(?=\b|_handle\b)")
MADE = re.compile(r"\s*(?:RAIIAtenTensorHandle|Borrowed|auto&?) (\w+)(?:\(| = )")
ALLOCATED = re.compile(r"\s*RAIIAtenTensorHandle (\w+)\(\1_handle\);$")
MOVED = re.compile(r"(\s*)auto (\w+) = std::move\((\w+)\);  // reuse$")
VIEW = r"wrap_with_raii_handle_if_needed\(reinterpret_tensor_wrapper\((\w+), \d+, \w+, \w+, \d+L\)\)"
VIEWED = re.compile(rf"(\s*auto (\w+) = {VIEW};)(?: \w+\.reset\(\);)?  // (?:reuse|alias)$")
ARGUMENT = re.compile(r"\w*arg\d+_1$")
OUT = re.compile(r"\s*AOTI_TORCH_ERROR_CODE_CHECK\(aoti_torch_cpu_\w*mm_out\(")
RESET = re.compile(r"\b(\w+)\.reset\(\);")
SHARES_NOTHING = re.compile(
    r"\s*(?://|cpp_fused\w*\(|AOTI_TORCH_ERROR_CODE_CHECK\(aoti_torch_(?:empty_strided|cpu_\w*mm_out|item_\w+)\("
    r"|assert_size_stride\(|AtenTensorHandle |(?:\w+\.reset\(\); ?)+$)"
)


def hoisted(text: str) -> str:
    """Return the C++ with allocations and views moved before the loops, inner loops first."""
    lines = text.split("\n")
    for start in reversed([i for i, line in enumerate(lines) if line.strip() == "while (1) {"]):
        end = _end(lines, start)
        before, body = _split(lines[start + 1 : end])
        lines[start:end] = [*before, lines[start], *body]
    return "\n".join(lines)


def _end(lines: Sequence[str], start: int) -> int:
    closing = lines[start][: -len("while (1) {")] + "}"
    return next(i for i in range(start + 1, len(lines)) if lines[i] == closing)


@define
class _Families:
    """Classes of names that may share memory: a union-find."""

    parents: dict[str, str] = field(factory=dict)

    def of(self, name: str) -> str:
        """Return the name that represents the class."""
        above = self.parents.setdefault(name, name)
        if above != name:
            above = self.parents[name] = self.of(above)
        return above

    def unite(self, names: Sequence[str]) -> None:
        """Merge the classes of these names."""
        for name in names:
            self.parents[self.of(name)] = self.of(names[0])


def _split(body: list[str]) -> tuple[list[str], list[str]]:
    """Return the lines that move before the loop, in their order, and those that stay."""
    inside, families = set[str](), _Families()
    for line in body:
        made = MADE.match(line)
        inside |= {made.group(1)} if made else set()
        if not SHARES_NOTHING.match(line):
            families.unite(NAME.findall(line))
    outside = {families.of(name) for name in list(families.parents) if name not in inside and not _raw(name)}
    kept = {name for name in _allocated(body) if families.of(name) not in outside}
    before, after, views = list[str](), list[str](), dict[str, str]()
    for line, top in _levels(body):
        if top and _moves(line, kept):
            before.append(_lasting(line))
        else:
            after.append(_named(line, kept, inside, views) if top else line)
    before += [f"auto {name} = {view};" for view, name in views.items()]
    return before, [line for line in (_without_resets(line, kept) for line in after) if line.strip()]


def _named(line: str, kept: set[str], inside: set[str], views: dict[str, str]) -> str:
    """Return the line, with its loop-invariant views replaced by names that are defined once, before the loop."""

    def name(found: re.Match[str]) -> str:
        of = found.group(1)
        if of not in kept and (of in inside or not ARGUMENT.match(of)):
            return found.group(0)
        return views.setdefault(found.group(0), f"{of}_view_{len(views)}")

    return re.sub(VIEW, name, line) if OUT.match(line) else line


def _raw(name: str) -> bool:
    """Return whether it is a temporary handle, which is soon owned by another name."""
    return name.startswith("tmp_")


def _levels(body: Iterable[str]) -> Iterable[tuple[str, bool]]:
    """Yield each line, and whether it is at the top level of the loop, not in a loop or a branch inside it."""
    depth = 0
    for line in body:
        yield line, depth == 0
        depth += line.count("{") - line.count("}")


def _allocated(body: list[str]) -> set[str]:
    """Return the names that the loop itself allocates in each iteration."""
    names = set[str]()
    for line, top in _levels(body):
        if top and "aoti_torch_empty_strided(" in line:
            names.add(line[line.rindex("&") + 1 : line.rindex("_handle)")])
    return names


def _moves(line: str, kept: set[str]) -> bool:
    """Return whether the line can move before the loop; a new name for hoisted memory is added to `kept`."""
    stripped = line.strip()
    if stripped.startswith("static constexpr int64_t"):
        return True
    if stripped.startswith("AtenTensorHandle "):
        return stripped[len("AtenTensorHandle ") : -len("_handle;")] in kept
    if "aoti_torch_empty_strided(" in line:
        return line[line.rindex("&") + 1 : line.rindex("_handle)")] in kept
    allocated = ALLOCATED.match(line)
    if allocated:
        return allocated.group(1) in kept
    moved, viewed = MOVED.match(line), VIEWED.match(line)
    new, old = moved.group(2, 3) if moved else viewed.group(2, 3) if viewed else ("", "")
    if old in kept:
        kept.add(new)
    return old in kept


def _lasting(line: str) -> str:
    """Return a line that names memory anew, changed so that the memory keeps its first name too."""
    moved, viewed = MOVED.match(line), VIEWED.match(line)
    if moved:
        return f"{moved.group(1)}auto& {moved.group(2)} = {moved.group(3)};"
    return viewed.group(1) if viewed else line


def _without_resets(line: str, kept: set[str]) -> str:
    return RESET.sub(lambda found: "" if found.group(1) in kept else found.group(0), line)
