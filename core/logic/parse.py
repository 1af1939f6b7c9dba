"""Parsers of facts, rules, queries and domains, one per line; an invalid line is refused with its number.

Blank lines, and lines that begin with % or #, are skipped, except that a line with two tabs is a fact. Spaces around a name
are removed. As in Prolog, a name may be quoted: 'born in'('Graz', 'Washington, D.C.'), with '' for a quote in it. It then has
any characters except tabs, and is no variable.
"""

import re
from collections.abc import Iterator, Mapping

from attrs import frozen

from ..errors import ChoiceError, choose, message
from .rules import Rule, check_rule, constant_name, is_quoted, names_variable
from .terms import Names

QUOTED = r"'(?:[^'\t\n]|'')+'"
WORD = rf"(\s*{QUOTED}\s*|[^\t(),]+)"
RELATION = rf"\s*({QUOTED}|(?!:-)[^\s(),\\]+)\s*"  # else no spaces and operators, as in \+ p, not p, :- p
ATOM = re.compile(rf"{RELATION}\({WORD},{WORD}\)")
ATOMS = re.compile(rf"{ATOM.pattern}(?:\s*,{ATOM.pattern})*")
REMEDY = "correct it, or begin it with % to skip it"
MOST_SHOWN = 100  # characters of a refused line in its error message


@frozen
class DomainLines:
    """The content of a domain file: the constants of each domain, and the domain of each argument (0 or 1) of a predicate."""

    members: Mapping[str, tuple[str, ...]]
    arguments: Mapping[tuple[str, int], str]


def parse_facts(text: str, source: str) -> tuple[Names, ...]:
    """Return the facts of a text, in order: lines `relation(head, tail).` or `head<TAB>relation<TAB>tail`.

    The final dot is optional. Names have any characters except tabs; in the first form, unless quoted, also except ( ) and
    comma, and the relation has no spaces and no backslash.
    Raises: ChoiceError with the source, the line's number and the line.

    >>> parse_facts("near(a, b).\\n% a remark\\nb\\tnear\\tc d", "facts.txt")
    (('near', 'a', 'b'), ('near', 'b', 'c d'))
    """
    return tuple(_fact(line, where) for where, line in _lines(text, source))


def parse_query(text: str) -> Names:
    """Return the atom of a text such as "near(a, b)"; see `constant` for quotes that are left. Raises: ChoiceError.

    >>> parse_query("locatedin(france, europe)"), parse_query("'born in'(X, 'Graz')")
    (('locatedin', 'france', 'europe'), ('born in', 'X', "'Graz'"))
    """
    atoms = _atoms(text.strip().removesuffix("."))
    if len(atoms) != 1:
        remedy = "write one atom with two arguments, and names with spaces or commas in quotes: 'born in'(X, graz)"
        raise _refused("query", text, "relation(head, tail)", remedy)
    return atoms[0]


def parse_rules(text: str, source: str) -> tuple[Rule, ...]:
    """Return the rules of a text, in order, from lines of four forms.

    `name:score:near(x,y), in(y,z) -> in(x,z)`: arguments are variables and converted to capitals; the score is the confidence.
    `in(X, Z) :- near(X, Y), in(Y, Z).`: as in Prolog, a variable begins with a capital or _; the final dot is optional.
    `0.9 :: in(X, Z) :- near(X, Y), in(Y, Z).`: the same with a confidence, as in ProbLog.
    `body<TAB>support<TAB>confidence<TAB>in(X,Z) <= near(X,Y), in(Y,Z)`: as AnyBURL writes them, with single capitals for
    variables; both counts are ignored.
    Raises: ChoiceError with the source and the line's number for a line of neither form, a rule without a body, one whose
    body does not bind a variable of its head, and the variable `_`, which in Prolog is a new variable each time.

    >>> for rule in parse_rules("r0:0.9:near(x,y), in(y,z) -> in(x,z)\\n'is in'(X, 'Asia') :- near(X, china).", "rules.txt"):
    ...     print(rule.confidence, rule)
    0.9 in(X, Z) :- near(X, Y), in(Y, Z)
    None 'is in'(X, 'Asia') :- near(X, china)
    """
    return tuple(_rule(line, where) for where, line in _lines(text, source))


def parse_domains(text: str, source: str) -> DomainLines:
    """Return domains from lines `domain constant constant ...`, and arguments' domains from lines `predicate:domain:domain`.

    Constants are separated by spaces, or by tabs if the line has one. Raises: ChoiceError with the source and the line's
    number for a domain without constants, a repeated domain, and an argument of an unknown domain.

    >>> parse_domains("place rome oslo\\npeople ann\\nlives:people:place", "domains.txt").arguments
    {('lives', 0): 'people', ('lives', 1): 'place'}
    """
    members, arguments = dict[str, tuple[str, ...]](), dict[tuple[str, int], tuple[str, str]]()
    for where, line in _lines(text, source):
        words = [word.strip() for word in (line.split("\t") if "\t" in line else line.split())]
        first, *both = line.split(":")
        if len(words) > 1 and all(words) and words[0] not in members:
            members[words[0]] = tuple(words[1:])
        elif len(words) == 1 and len(both) == 2 and first and (first, 0) not in arguments:
            arguments |= {(first, argument): (where, name) for argument, name in enumerate(both)}
        else:
            wanted = "`domain constant ...` or `predicate:domain:domain`, each domain and predicate once"
            raise _refused(where, line, wanted, REMEDY)
    known = {name: name for name in members}
    chosen = {key: choose(f"{where}: domain", name, known) for key, (where, name) in arguments.items()}
    return DomainLines(members, chosen)


def _lines(text: str, source: str) -> Iterator[tuple[str, str]]:
    """Yield the source and number of each line that is not skipped, and the line."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and (line.lstrip(" ")[0] not in "%#" or line.count("\t") == 2):
            yield f"{source}, line {number}", line.strip("\r\n ")


def _refused(where: str, line: str, wanted: str, remedy: str) -> ChoiceError:
    shown = line if len(line) <= MOST_SHOWN else f"{line[:MOST_SHOWN]}..."
    return ChoiceError(message(where, got=repr(shown), wanted=wanted, remedy=remedy))


def _atoms(text: str) -> tuple[Names, ...]:
    """Return the atoms of `p(a,b), q(c,d)`; () for any other text."""
    found = ATOM.findall(text) if ATOMS.fullmatch(text.strip()) else []
    atoms = tuple((_unquoted(name), _argument(first), _argument(second)) for name, first, second in found)
    return atoms if all(word for atom in atoms for word in atom) else ()


def _unquoted(text: str) -> str:
    word = text.strip()
    return word[1:-1].replace("''", "'") if re.fullmatch(QUOTED, word) else word


def _argument(text: str) -> str:
    """Return a variable or a constant; one that would be a variable, or quoted, without its quotes keeps them."""
    word = _unquoted(text)
    return f"'{word}'" if (names_variable(word) or is_quoted(word)) and text.strip() != word else word


def _fact(line: str, where: str) -> Names:
    if "\t" in line:
        words = [word.strip() for word in line.split("\t")]
        if len(words) == 3 and all(words):
            return words[1], words[0], words[2]
    elif len(atoms := _atoms(line.removesuffix("."))) == 1:
        relation, head, tail = atoms[0]
        return relation, constant_name(head), constant_name(tail)
    wanted = "relation(head, tail). or head<TAB>relation<TAB>tail"
    raise _refused(where, line, wanted, REMEDY)


def _rule(line: str, where: str) -> Rule:
    arrow, score = "->" in line and "\t" not in line, ""
    if "\t" in line:
        columns = [*line.split("\t"), "", "", ""]
        score, (head_text, _, body_text) = columns[2].strip() or "none", columns[3].partition("<=")
    elif arrow:
        _, score, said = [*line.split(":", 2), "", ""][:3]
        body_text, _, head_text = said.rpartition("->")
        score = score or "none"
    else:
        before, annotated, said = line.removesuffix(".").partition("::")
        annotated = annotated if _is_number(before) else ""  # a name may have the sign too
        score, said = (before, said) if annotated else ("", line.removesuffix("."))
        head_text, _, body_text = said.partition(":-")
    heads, body = _atoms(head_text), _atoms(body_text)
    if len(heads) != 1 or not (score == "" or _is_number(score)) or (body_text.strip() and not body):
        wanted = "`name:score:body(x,y), body(y,z) -> head(x,z)` or `head(X,Z) :- body(X,Y), body(Y,Z).`"
        raise _refused(where, line, wanted, REMEDY)
    atoms = tuple((name, a.upper(), b.upper()) if arrow else (name, a, b) for name, a, b in (*heads, *body))
    if "\t" in line:
        atoms = tuple((name, _of_anyburl(a), _of_anyburl(b)) for name, a, b in atoms)
    words = {word for atom in atoms for word in atom[1:]}
    if "_" in words or (arrow and not all(names_variable(word) for word in words)):
        wanted = "variables that begin with a letter" if arrow else "a name for every variable"
        raise _refused(where, line, wanted, "rename what is none, e.g. x, y, z" if arrow else "write X, Y, ... for _")
    return check_rule(where, Rule(atoms[0], atoms[1:], float(score) if score else None))


def _of_anyburl(word: str) -> str:
    return f"'{word}'" if names_variable(word) and len(word) > 1 else word


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
