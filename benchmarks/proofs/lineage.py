"""The maternal line of a population: facts to be proven by four rules and more, of which each query has one answer.

A person of generation 0 founds a line: founder(X, Z) holds for Z, the mother's mother and so on of X in that generation. The
train split has each person's mother, or both parents as `child` without their sexes, or neither; all siblings that share a
parent; and a part of the founders. Valid and test are founders over four and more generations. The rules come with confidences:
a parent is the mother one time out of two, and siblings may share their father alone.
"""

from pathlib import Path

from purestep.core import keys

RULES = """\
0.99::founder(X, Z) :- mother(X, Y), founder(Y, Z).
0.5::mother(X, Y) :- child(Y, X).
0.6::founder(X, Z) :- sibling(X, Y), founder(Y, Z).
"""
GENERATIONS, DISTANCE, HELD_OUT = 8, 4, 100
MOTHER, PARENTS, KNOWN = 0.6, 0.95, 0.1  # up to which draw a person's facts are there, and the share of known founders


def written(folder: Path, people: int, seed: int) -> None:
    """Write the data set with its rules into a folder: so many people in each generation, an even number."""
    key = keys.key(seed)
    parents: dict[int, tuple[int, int]] = {}  # mother and father
    for generation in range(1, GENERATIONS):
        own, before = keys.fold_in(key, generation), (generation - 1) * people
        order = (keys.permutation(keys.fold_in(own, 0), people) + before).tolist()
        women, men = order[: people // 2], order[people // 2 :]
        couples = [*zip(women, men, strict=True), *zip(women[::3], men[1::3], strict=False)]  # some marry twice
        chosen = keys.randint(keys.fold_in(own, 1), (people,), 0, len(couples)).tolist()
        parents |= {generation * people + place: couples[couple] for place, couple in enumerate(chosen)}
    founder = {one: one for one in range(people)}
    founder |= {one: founder[founder_of] for one, (founder_of, _) in parents.items() if founder_of < people}
    for one in range(2 * people, GENERATIONS * people):
        founder[one] = founder[parents[one][0]]
    facts: list[tuple[str, int, int]] = []
    for (one, both), draw in zip(
        parents.items(), keys.uniform(keys.fold_in(key, 100), (len(parents),)).tolist(), strict=True
    ):
        if draw < MOTHER:
            facts.append(("mother", one, both[0]))
        elif draw < PARENTS:
            facts += [("child", parent, one) for parent in both]
    facts += [
        ("sibling", one, other)
        for one, both in parents.items()
        for other, others in parents.items()
        if one != other and set(both) & set(others)
    ]
    order = (keys.permutation(keys.fold_in(key, 101), len(parents)) + people).tolist()
    known = set(order[: int(KNOWN * len(order))]) | set(range(people, 2 * people))
    far = [one for one in order if one not in known and one // people >= DISTANCE]
    splits = {
        "train": facts + [("founder", one, founder[one]) for one in sorted(known)],
        "valid": [("founder", one, founder[one]) for one in far[:HELD_OUT]],
        "test": [("founder", one, founder[one]) for one in far[HELD_OUT : 2 * HELD_OUT]],
    }
    for name, rows in splits.items():
        lines = (f"p{one}\t{relation}\tp{other}\n" for relation, one, other in rows)
        (folder / f"{name}.txt").write_text("".join(lines))
    (folder / "rules.txt").write_text(RULES)
