"""Facts, rules, queries and domains from text, and one line for what is none of them."""

import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from purestep.core.errors import ChoiceError
from purestep.core.logic.parse import parse_domains, parse_facts, parse_query, parse_rules
from purestep.core.logic.rules import Rule, constant_name, encode_rules, names_variable
from purestep.core.logic.terms import vocabulary

WORD = st.text(st.characters(exclude_categories=["Zs", "Zl", "Zp", "Cc", "Cs"], exclude_characters="(),%#"), min_size=1)
RELATION = WORD.filter(lambda word: word[0] != "'").filter(lambda word: "\\" not in word and not word.startswith(":-"))
ATOM = st.tuples(RELATION, *[WORD.filter(lambda word: not (word[0] == word[-1] == "'"))] * 2)
NAME = st.text(st.sampled_from("aZ_ ,()'\\.%é"), min_size=1).filter(lambda name: name == name.strip())


@given(st.lists(ATOM))
def test_facts_survive_being_written_in_either_form(facts: list[tuple[str, str, str]]) -> None:
    prolog = "\n".join(f"{predicate}({first}, {second})." for predicate, first, second in facts)
    tabbed = "\r\n".join(f"{first}\t{predicate}\t{second}" for predicate, first, second in facts)
    assert parse_facts(prolog, "x") == parse_facts(tabbed, "x") == tuple(facts)


def test_a_line_of_three_columns_is_a_fact_whatever_it_begins_with() -> None:
    assert parse_facts("#tag\trel\tb\n%x\trel\ty\n# a\tremark", "x") == (("rel", "#tag", "b"), ("rel", "%x", "y"))


@pytest.mark.parametrize(
    "line", ["\\+ q(a, b).", "not q(a, b).", ":- q(a, b).", "p(X, Y) :- \\+ q(X, Y).", "p(X, Y) :- not q(X, Y)."]
)
def test_what_is_more_than_atoms_is_refused(line: str) -> None:
    parse = parse_rules if "p(" in line else parse_facts
    with pytest.raises(ChoiceError, match="x, line 1 is"):
        parse(line, "x")


def test_facts_may_have_blanks_and_odd_characters() -> None:
    text = "\n  p ( a b ,c ) .\n\n# no fact\n % neither\np(a.,b:c->d)\nf(x, y)\tp 1\t,\n"
    assert parse_facts(text, "x") == (("p", "a b", "c"), ("p", "a.", "b:c->d"), ("p 1", "f(x, y)", ","))
    assert parse_facts("", "x") == ()


@pytest.mark.parametrize(
    "line",
    [
        *("p", "p(a)", "p(a,b,c)", "p(a,)", "(a,b)", "p(f(a),b)", "p(a,b", "f,(a,b)"),
        *("p(a,b) q(c,d)", "p(a,b), q(c,d)", "p(a,b) -1", "p(a,b).."),
        *("a\tb", "a\tb\tc\td", "\tp\tb", "a\t \tb", "p(a,\tb)"),
    ],
)
def test_what_is_no_fact_is_refused_with_its_place(line: str) -> None:
    with pytest.raises(ChoiceError) as refused:
        parse_facts(f"% p(a)\n\np(a,b)\n{line}\np(a,b)", "facts.txt")
    said = str(refused.value)
    assert said.startswith(f"facts.txt, line 4 is {line!r}, wanted relation(head, tail). or ")
    assert "\n" not in said


def test_a_long_line_is_repeated_in_part() -> None:
    with pytest.raises(ChoiceError) as refused:
        parse_facts("x" * 10_000, "facts.txt")
    assert len(str(refused.value)) < 300


def test_queries_are_one_atom() -> None:
    assert parse_query(" locatedin( france,europe ). ") == ("locatedin", "france", "europe")
    for text in ("", "locatedin", "p(a,b), p(b,c)", "p(a,b,c)", "a\tp\tb"):
        with pytest.raises(ChoiceError, match=r"query is .*, wanted relation\(head, tail\)"):
            parse_query(text)


@given(NAME, NAME, NAME)
@example("'Z'", "''Z''", "'Z'")
def test_quoted_names_have_any_characters(relation: str, head: str, tail: str) -> None:
    quoted = ["'" + name.replace("'", "''") + "'" for name in (relation, head, tail)]
    text = f"{quoted[0]}({quoted[1]}, {quoted[2]})"
    assert parse_facts(text, "x") == ((relation, head, tail),)
    query = parse_query(text)
    assert (query[0], *map(constant_name, query[1:])) == (relation, head, tail)
    assert not any(map(names_variable, query[1:]))
    (rule,) = parse_rules(f"{quoted[0]}(X, {quoted[1]}) :- {quoted[0]}(X, {quoted[2]}).", "x")
    assert (rule.head[0], rule.head[1], constant_name(rule.head[2])) == (relation, "X", head)
    assert parse_rules(str(rule), "x") == (rule,)


def test_a_constant_with_a_capital_is_quoted_or_in_a_rule_of_anyburl() -> None:
    quoted, anyburl = parse_rules("p(X, 'Graz') :- q(X, Y).\n9\t5\t0.5\tp(X,Graz) <= q(X,A)", "x")
    assert quoted.head == anyburl.head == ("p", "X", "'Graz'")
    names = vocabulary(["p", "q"], ["Graz", "wien"], variables=2)
    assert encode_rules(names, [quoted])[0].tolist() == [[1, 3, 1]]


def test_rules_of_both_forms() -> None:
    text = """
        % of a family
        r0:0.95:isa(x,y), part_of ( Y , z1 ) -> part_of(x,z1)
        in(X, asia) :- near(X, _y), near(_y,china).
        _hyper(A,B):-_hypo(B,A)
    """
    assert parse_rules(text, "x") == (
        Rule(("part_of", "X", "Z1"), (("isa", "X", "Y"), ("part_of", "Y", "Z1"))),
        Rule(("in", "X", "asia"), (("near", "X", "_y"), ("near", "_y", "china"))),
        Rule(("_hyper", "A", "B"), (("_hypo", "B", "A"),)),
    )


@given(st.lists(st.tuples(ATOM, st.lists(ATOM, min_size=1, max_size=3)), min_size=1))
def test_rules_survive_being_written(drawn: list[tuple[tuple[str, str, str], list[tuple[str, str, str]]]]) -> None:
    """With variables a rule's own text is read back; its arguments are made distinct variables of one body each."""

    def variables(atom: tuple[str, str, str]) -> tuple[str, str, str]:
        return (re.sub("[:>.-]", "", atom[0]) or "p", "X1", "X2")

    rules = [Rule(variables(head), tuple(map(variables, body))) for head, body in drawn]
    assert parse_rules("\n".join(map(str, rules)), "x") == tuple(rules)
    arrows = [f"r:1:{str(rule).partition(' :- ')[2].lower()} -> {rule.head[0].lower()}(x1,x2)" for rule in rules]
    assert [len(rule.body) for rule in parse_rules("\n".join(arrows), "x")] == [len(rule.body) for rule in rules]


SHAPE = r"wanted `name:score:body\(x,y\), body\(y,z\) -> head\(x,z\)` or `head"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("p(X,Y)", "without a body"),
        ("p(X,Y) :- .", "without a body"),
        ("r:1: -> p(x,y)", "without a body"),
        ("p(X,Y) :- q(X,Z).", "which leaves Y open"),
        ("r:1:q(x,z) -> p(y,x)", "which leaves Y open"),
        ("q(x,y) -> p(x,y)", SHAPE),
        ("r:high:q(x,y) -> p(x,y)", SHAPE),
        ("r:1:q(x,y) p(x,y)", SHAPE),
        ("p(X,Y) :- q(X,Y) r(Y,X).", SHAPE),
        ("p(X,Y) :- q(X,Y), .", SHAPE),
        ("p(X), r(X,Y) :- q(X,Y).", SHAPE),
        ("p(X,Y), r(X,Y) :- q(X,Y).", SHAPE),
        (":- q(X,Y).", SHAPE),
        ("p(X,Y) :- q(X,_), r(_,Y).", "write X, Y, ... for _"),
        ("r:1:q(x,1) -> p(x,x)", "wanted variables that begin with a letter"),
        ("r:1:q(x,_) -> p(x,x)", "wanted variables that begin with a letter"),
    ],
)
def test_what_is_no_rule_is_refused_with_its_place(line: str, said: str) -> None:
    with pytest.raises(ChoiceError, match=said) as refused:
        parse_rules(f"p(X,Y) :- q(X,Y).\n{line}", "rules.txt")
    assert str(refused.value).startswith("rules.txt, line 2 is ")
    assert "\n" not in str(refused.value)


def test_domains() -> None:
    found = parse_domains("% of places\ncity rome oslo\nland\tsri lanka\tfiji\n\nin:city:land\nnear:city:city", "x")
    assert found.members == {"city": ("rome", "oslo"), "land": ("sri lanka", "fiji")}
    assert found.arguments == {("in", 0): "city", ("in", 1): "land", ("near", 0): "city", ("near", 1): "city"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("land", "wanted `domain constant ...` or `predicate:domain:domain`"),
        ("land\t\tfiji", "wanted `domain constant"),
        ("city rome", "each domain and predicate once"),
        ("in:city:city", "each domain and predicate once"),
        ("in:city", "wanted `domain constant"),
        (":city:city", "wanted `domain constant"),
        ("to:city:sea", r"line 3: domain is 'sea', wanted one of \['city'\]"),
    ],
)
def test_what_is_no_domain_is_refused_with_its_place(line: str, said: str) -> None:
    with pytest.raises(ChoiceError, match=said) as refused:
        parse_domains(f"city oslo\nin:city:city\n{line}", "domains.txt")
    assert str(refused.value).startswith("domains.txt, line 3")


@pytest.mark.parametrize("parse", [parse_facts, parse_rules, parse_domains])
def test_every_line_of_a_text_is_read_or_refused(parse: Callable[[str, str], object]) -> None:
    with pytest.raises(ChoiceError, match="x, line 1 is "):
        parse("\x00\u2028", "x")
