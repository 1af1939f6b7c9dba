"""Inputs of the command line as accidents and ill will make them: words, and what lies in the folder. No program itself.

`drawn` takes every choice from a `random.Random`, so that a number, or hypothesis, decides a whole input. An input is data: its
words, and the steps by which `fuzz_side` lays out the folder in which the command is called.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from random import Random

from attrs import evolve, frozen

Step = tuple[str, ...]  # an action of `fuzz_side.lay`, and what it needs

PICTURES = (
    "learning_curve.png",
    "timeline.png",
    "staleness.png",
)  # of a run with generators, in a folder that is named
RUN, OUT, KEPT, CANARY = "run", "drawn.png", "mine.txt", "CANARY"
OTHERS = "../others"  # a tree of somebody else's files, beside the folder in which a command is called
# fmt: off
NET = ("--width", "16", "--layers", "1", "--heads", "2", "--warm-steps", "3", "--demonstrations", "12", "--warm-batch", "4")
PLAY = ("--steps", "96", "--envs", "2", "--horizon", "8", "--hidden", "8", "--backend", "none", "--episodes", "3")
ASK = ("--candidates", "3", "--queries", "3", "--slots", "8")
SPEAK = (*NET, "--groups", "1", "--samples", "2", "--held-out", "2", "--max-turns", "2", "--max-new-tokens", "4")
TINY: Mapping[str, tuple[str, ...]] = {
    "ppo": (*PLAY, "--checkpoints", "3"),
    "a2c": PLAY,
    "reinforce": PLAY,
    "prove": (
        *("--data", "family:30", "--steps", "96", "--size", "8", "--width", "8", "--blocks", "1", "--warm-up", "3"),
        *("--envs", "4", "--horizon", "8", "--minibatches", "2", "--epochs", "1", "--backend", "none"),
        *("--checkpoints", "3", *ASK),
    ),
    "zorplex": (*SPEAK, "--steps", "3", "--minibatches", "1", "--capacity", "64"),
    "cache": (
        *(*NET, "--steps", "3", "--problems", "1", "--states", "1", "--samples", "2", "--minibatches", "1"),
        *("--held-out", "2", "--cycles", "2", "--longest", "3", "--test-longest", "4"),
        *("--num-reasoning-steps", "2", "--max-retries", "0"),
    ),
}
AT_ONCE = ("--mode", "async", "--generators", "1", "--generator-engine", "thread")
MADE: Mapping[str, tuple[str, ...]] = {  # runs that inputs have copies of, and how they are trained
    **{name: ("train", name, *TINY[name]) for name in ("ppo", "prove", "zorplex", "cache")},
    "async": ("train", "zorplex", *TINY["zorplex"], *AT_ONCE),
}
FEWER: Mapping[str, tuple[str, ...]] = {  # what keeps an evaluation short
    "ppo": ("--episodes", "2"),
    "prove": ASK,
    "zorplex": ("--tasks", "2"),
    "cache": ("--problems", "1", "--cycles", "2"),
    "async": ("--tasks", "2"),
}

WHOLE = (
    *("0", "-1", "1", "2", "3", "7", "1000", "1000000", "-9223372036854775808", "9223372036854775808", "1" + "0" * 30),
    *("9" * 5000, "1e3", "0x10", "1_0", "٣", "NaN", "inf", "", " ", "3.5", "--", "-", "-x", "true", "None", "1\n2", "\udcff"),
)
REAL = (
    *("nan", "inf", "-inf", "1e400", "-0.0", "0", "1e-320", "1e30", "-1", "0.5", "1", "2", "", "a", "１", "1_0", "--", "1,5"),
    *("\udcff", "9" * 5000, "0x1p3", "1e", "None"),
)
SPECIAL = ("/dev/zero", "/dev/null", "/proc/self/mem", "/proc/self/fd/0", "/dev/full", "/proc/self/pagemap", "fifo", "endless")
TEXT = (
    *("", " ", "a" * 5000, "a/" * 2000, "--help", "-h", "--", "\n", "\x1b[31mred", "\udcff\udcfe", "ñ", "🙂", "..", "/", "~"),
    *("%s{0}{x}", "{problem}", "{", "}", "a:b", "a.b", "canary.touch", "canary:touch", "canary_at_import.touch", "os.system"),
    *("canary.Thing", "127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:-1", ":", "::1:0", "[::1]:0", "http://127.0.0.1:1/v1"),
    *("file:///etc/passwd", "http://[::", "cuda:0", "cuda:99", "cpu", "meta", "family:0", "family:-1", "family:1", "family:3"),
    *("family:9" + "9" * 30, "family:5:" + "9" * 40, "family:٣", "family:20:", "pykeen:nations", "pykeen:", "project"),
    *("\u202eright", "a\tb", "'", '"', "$(touch CANARY)", "`touch CANARY`", "; touch CANARY", "cartpole", "a" * 70000),
)
VALUES = (  # what a value of JSON is replaced by
    *("null", "true", "false", "0", "-1", "1", "1e400", "-1e400", "NaN", "Infinity", "1.5", "9" * 400, "9" * 5000, '""', "[]"),
    *("{}", '"a"', "[[]]", "[1, 2]", '{"a": 1}', "[" * 900 + "]" * 900, "[" * 90000 + "]" * 90000),
    *('{"a":' * 50000 + "1" + "}" * 50000, '{"a":' * 90 + "1" + "}" * 90),
    *('"canary.touch"', '"canary_at_import.touch"', '{"$tag": "canary.Thing"}', '{"class": "canary.Thing", "fields": {}}'),
    *('"\\ud800"', '"\\u0000"', "9223372036854775807", "9223372036854775808", "100000000", '"../../../others"', '"/dev/zero"'),
    *('"' + "a" * 100000 + '"', "", "{", "'"),
)
LINES = (
    *("", "a", "a\tb", "a\tb\tc", "a b c", "a(b,c).", "a(b,c,d).", "a(b", "(a,b).", "é(ü,ß)."),
    *("a(b,c). d(e,f).", "% note", "\x00"),
    *("\xff\xfe", "a" * 100000 + "(b,c).", "X(Y,Z).", "a(X,b).", "\ufeffa(b,c).", "'q'(\"r\", s).", ":-"),
    *("p(X) :- .", "a(,).", "a().a"),
    *("p(X,Y) :- q(X,Y), .", "p(X,Y):-p(X,Y).", "1.0 : p(X,Y) <= q(X,Y)", "\r", "\u2028"),
    *("a(" * 5000 + ")" * 5000, "p(X,Y) :- in(X,Z)."),
    *("in(a, in).", "in(in, in).", "in(a,b) :- in(b,a).", "in(X,Y) :- in(Y,X).", "0(1,2).", "-1(2,3)."),
    *("in(a,b", "in(a,b)..", "NaN(a,b)."),
    *("in(X,Y) :- " + ", ".join(["in(X,Y)"] * 400) + ".", '{"a": 1}', "{}", "[]", "null", '{"iteration": "a"}', "9" * 5000),
)
KNOWN = (
    "in(france, europe).", "in(peru, america).", "borders(spain, france).", "borders(portugal, spain).",
    "in(spain, europe).",
)
RULE = "in(X, Z) :- borders(X, Y), in(Y, Z)."
QUERIES = ("father(p001, p002)", "uncle(p003, p004).", "son(p010, p001)", "wife(p030, p030)")
PICKLE = f"cos\nsystem\n(S'touch {CANARY}'\ntR."
NAMES = (
    "é", "a b", "a\nb", "-dash", "--run", "a" * 300, "/".join(["a" * 200] * 30), "\udcff", "a;b",
    "$HOME", "*", "con", "a\x1bb",
)
FOREIGN = ("arguments.json", "metrics.jsonl", "evaluation.json", "before.json", "rollouts.jsonl", "learning_curve.png")
# fmt: on


@frozen
class Input:
    """A command line, and where it is called."""

    command: str  # a row of the table
    words: tuple[str, ...]
    steps: tuple[Step, ...] = ()
    typed: str = ""  # on standard input
    own: tuple[str, ...] = ()  # what may change: the run's folder, a picture
    good: bool = False  # a good older checkpoint lies there, so that it has to succeed
    trusted: bool = False  # the words themselves name code
    long: bool = False  # may be accepted and take hours: Ctrl-C is pressed after some seconds
    alone: bool = False  # in a process of its own


@frozen
class Ground:
    """The source of inputs beside tables: the options of each command as its help says, and the files of made runs."""

    options: Mapping[str, Sequence[tuple[str, str]]]  # command -> (option, kind of its value)
    runs: Mapping[str, Sequence[str]]


def drawn(draw: Random, ground: Ground, commands: Sequence[str] = ()) -> Input:
    """An input, of one of these commands or of any."""
    command = draw.choice(commands or [name for name, (weight, _) in COMMANDS.items() for _ in range(weight)])
    return COMMANDS[command][1](draw, ground, command)


# --- words ---


def _value(draw: Random, kind: str) -> str:
    """Draw a text that somebody might write where a value of this kind belongs."""
    if draw.random() < 0.1:
        return draw.choice((*TEXT, *WHOLE, *REAL, *SPECIAL))
    if "INT" in kind:
        return draw.choice(WHOLE)
    if "FLOAT" in kind:
        return draw.choice(REAL)
    if "{" in kind:
        known = kind.strip("{}").split(",")
        return draw.choice((*known, *known, *TEXT[:12], known[0].upper(), known[0][:2]))
    return draw.choice((*TEXT, *SPECIAL))


def _changed(draw: Random, words: Sequence[str], options: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The words with something odd about them."""
    changed = list(words)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        name, kind = draw.choice(options) if options else ("--help", "")
        value, way = _value(draw, kind), draw.randrange(20)
        at = draw.randint(1, len(changed))
        if way < 8:
            changed += [name, value]
        elif way < 10:
            changed += [f"{name}={value}"]
        elif way == 10:
            changed += [name]
        elif way == 11:
            changed += [name[: draw.randint(1, len(name))], value]
        elif way == 12:
            changed += [name, value, name, _value(draw, kind)]
        elif way == 13:
            changed += [
                draw.choice(("--nothing", "-q", "--no-" + name[2:], name + "s", name.upper(), name.replace("-", "_"))),
                value,
            ]
        elif way == 14 and len(changed) > 1:
            del changed[draw.randrange(1, len(changed))]
        elif way == 15:
            changed.insert(at, draw.choice((*TEXT, *WHOLE, *SPECIAL)))
        elif way == 16:
            changed[-1:] = [value]
        elif way == 17:
            changed.insert(at, draw.choice(("--help", "-h", "--", "--debugg", "--version")))
        elif way == 18:
            changed += [name, value, value]
        else:
            changed.insert(at, name)
    return tuple(word.replace("\x00", "") for word in changed if word != "--debug")


def _plain(words: Sequence[str]) -> bool:
    """Return whether no word names an endless file, which is to be refused before anybody presses Ctrl-C."""
    return not any(special in word for word in words for special in SPECIAL)


# --- places ---


def _place(draw: Random, inside: str) -> tuple[str, tuple[Step, ...], tuple[str, ...]]:
    """A path that is not what it should be, how it came about, and what may change. `inside` is a file's name in a run."""
    path = draw.choice(("there", "there", "a b", "é", "-there", "line\nbreak", "\udcfe"))
    word = path if not path.startswith("-") else f"./{path}"
    held = f"{path}/{inside}"
    # fmt: off
    ways: Sequence[tuple[str, tuple[Step, ...], tuple[str, ...]]] = (
        (word, (("folder", path),), (path,)),
        (word, (), (path,)),
        (path, (), (path,)),
        (draw.choice(("", ".", "..", "/", "/nowhere/at/all", "//", OTHERS, "/etc", "/proc/self", "/dev/fd/0")), (), ()),
        (draw.choice(NAMES), (), NAMES),
        (draw.choice(SPECIAL), (), ()),
        (f"{draw.choice(SPECIAL)}/a", (), ()),
        ("absent/" * draw.choice((2, 5, 100)) + "end", (), ("absent",)),
        (word, (("file", path, draw.choice(("", "text", "{}", "\x89PNG\r\n")),),), ()),
        (f"{word}/below", (("file", path, "text"),), ()),
        (word, (("folder", path), *(("file", f"{path}/{name}", "mine") for name in draw.sample(FOREIGN, 2))), ()),
        (word, (("folder", path), ("file", f"{path}/arguments.json", '{"recipe": "ppo"}'), ("folder", f"{path}/model")), ()),
        (word, (("file", f"{path}/arguments.json", draw.choice(VALUES)), ("file", f"{path}/model/a", "a")), ()),
        (word, (("folder", path), ("file", f"{path}/notes", "mine")), ()),
        ("project", (), ()),
        (word, (("link", path, "project"),), ()),
        (word, (("link", path, OTHERS),), ()),
        (word, (("folder", "real"), ("link", path, "real")), ("real",)),
        (word, (("link", path, draw.choice(("nowhere", "nowhere/at/all", "/nowhere/at/all"))),), ("nowhere",)),
        (word, (("link", path, path),), ()),
        (word, (("fifo", path),), ()),
        (word, (("folder", path), ("mode", path, "0555")), ()),
        (word, (("folder", path), ("mode", path, "0000")), ()),
        (word, (("folder", path), ("mode", path, "0333")), (path,)),
        (word, (("folder", path), ("link", held, f"{'../' * 2}others/kept.txt")), ()),
        (word, (("folder", path), ("link", held, f"{'../' * 2}others")), ()),
        (word, (("folder", path), ("link", held, f"{'../' * 2}others/made.txt")), ()),
        (word, (("folder", path), ("link", held, inside)), ()),
        (word, (("folder", path), ("fifo", held)), ()),
        (word, (("folder", path), ("folder", held)), (path,)),
        (word, (("folder", path), ("file", held, "mine")), ()),
    )
    # fmt: on
    return draw.choice(ways)


WRITTEN = (
    ".lock",
    ".partial-arguments.json",
    "arguments.json",
    "checkpoints",
    "metrics.jsonl",
    "tensorboard",
    "evaluation.json",
)
WRITTEN_TOO = (
    "model",
    "tokenizer",
    "learning_curve.png",
    ".partial-evaluation.json",
    "warm",
    "purestep.json",
    ".purestep",
)


# --- runs that are damaged ---


def _checkpoints(files: Sequence[str]) -> list[str]:
    """The folders of checkpoints in the phase that a run ended with, newest first."""
    folders = {file.rpartition("/")[0] for file in files if "/step_" in f"/{file}"}
    last = "async/" if any(folder.startswith("async/") for folder in folders) else "checkpoints/"
    return sorted((folder for folder in folders if folder.startswith(last)), reverse=True)


def _damaged(draw: Random, ground: Ground, kind: str) -> tuple[tuple[Step, ...], bool]:
    """The steps that copy a made run and damage it, and whether a good checkpoint is left beside files as they were."""
    files, steps = ground.runs[kind], [("run", RUN, kind), ("file", f"{RUN}/{KEPT}", "mine")]
    newest, *older = _checkpoints(files)
    good = draw.random() < 0.6
    targets = [file for file in files if file.startswith(newest + "/")] if good else files
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        file = draw.choice(targets)
        made, spares = _harm(draw, file, newest, older[0] if older else newest)
        steps += made
        good = good and spares
    return tuple(steps), good and bool(older)


def _harm(draw: Random, file: str, newest: str, older: str) -> tuple[tuple[Step, ...], bool]:
    """Draw the damage to a file of a run, or to its newest checkpoint, and whether the checkpoint before it stays as it was."""
    path, way = f"{RUN}/{file}", draw.randrange(22)
    number, value = str(draw.randrange(10**6)), draw.choice(VALUES)
    if file.endswith(".json") and way < 12:
        return (("json", path, number, value) if way < 9 else ("key", path, number, draw.choice(("-", "+"))),), True
    if file.endswith(".jsonl") and way < 10:
        return (("line", path, number, draw.choice((value, *LINES))),), True
    if file.endswith(".safetensors") and "/step_" in f"/{file}" and way < 8:
        what = draw.choice(("nan", "nan", "inf", "drop", "shape", "dtype", "name", "zero"))
        return (("weights", f"{RUN}/{newest}", what),), what != "zero"
    target = draw.choice(
        ("nowhere", "/dev/zero", "/proc/self/mem", "/dev/null", "../../../../others/kept.txt", "self", "/etc/passwd")
    )
    name = path.rpartition("/")[2]
    others: Sequence[tuple[tuple[Step, ...], bool]] = (
        ((("flip", path, number),), True),
        ((("flip", path, number), ("flip", path, number[::-1])), True),
        ((("cut", path, number),), True),
        ((("file", path, ""),), True),
        ((("remove", path),), True),
        ((("remove", path), ("folder", path)), True),
        ((("remove", path), ("link", path, name if target == "self" else target)), True),
        ((("remove", path), ("fifo", path)), True),
        ((("file", path, draw.choice((*VALUES, *LINES, PICKLE, "\x80\x04\x95"))),), True),
        ((("mode", path, "0000"),), True),
        ((("copy", f"{RUN}/{older}/{name}", path),), True)
        if path.startswith(f"{RUN}/{newest}/")
        else ((("cut", path, number),), True),
        (
            (
                ("remove", f"{RUN}/{newest}"),
                ("link", f"{RUN}/{newest}", draw.choice(("../../../others", "nowhere", newest.rpartition("/")[2]))),
            ),
            True,
        ),
        ((("remove", f"{RUN}/{newest}"), ("file", f"{RUN}/{newest}", "text")), True),
        ((("swap", f"{RUN}/{newest}", f"{RUN}/{older}"),), False),
        (
            (
                (
                    "folder",
                    f"{RUN}/{newest.rpartition('/')[0]}/step_{draw.choice(('999999', 'x', '-1', '9' * 40, '000001-9', ''))}",
                ),
            ),
            False,
        ),
    )
    return draw.choice(others)


# --- commands ---


def _helped(draw: Random, ground: Ground, command: str) -> Input:
    """Help, commands that are none, and no command at all."""
    known = [name.split() for name in ground.options]
    words = draw.choice(
        (
            (*draw.choice(known), "--help"),
            (*draw.choice(known), "-h", draw.choice(TEXT)),
            ("--help", *draw.choice(known)),
            (draw.choice(TEXT),),
            ("train", draw.choice(TEXT)),
            (draw.choice(known)[0][:-1],),
            (),
        )
    )
    return Input(command, tuple(word for word in words if word != "--debug"))


def _train(draw: Random, ground: Ground, command: str) -> Input:
    """A training: with odd options, into an odd place, or on odd data."""
    recipe = command.split()[1]
    words, way = ("train", recipe, *TINY[recipe]), draw.random()
    if way < 0.55:
        given = _changed(draw, (*words, "--run", RUN), ground.options[command])
        return Input(
            command,
            given,
            own=(RUN, "runs", *(word.partition("=")[2] or word for word in given[2:])),
            long=_plain(given),
            trusted=any("canary" in word for word in given),
        )
    if way < 0.75 or recipe not in DATA:
        place, steps, own = _place(draw, draw.choice((*WRITTEN, *WRITTEN_TOO)))
        more = ("--overwrite",) if draw.random() < 0.4 else ()
        written = (f"--run={place}",) if place.startswith("-") or draw.random() < 0.3 else ("--run", place)
        return Input(command, (*words, *written, *more), steps, own=(*own, "runs"))
    if way < 0.8 and recipe in ground.runs:
        steps, _ = _damaged(draw, ground, recipe)
        return Input(command, (*words, "--run", RUN, *draw.choice(((), ("--overwrite",)))), steps, own=(RUN,))
    return DATA[recipe](draw, evolve(Input(command, (*words, "--run", RUN)), own=(RUN,)))


def _lines(draw: Random, known: Sequence[str]) -> str:
    """A file of lines, some of them odd."""
    lines = [draw.choice((*LINES, *known, *known, *known)) for _ in range(draw.randint(0, 6))]
    return draw.choice(("\n", "\n", "\n", "\r\n", "")).join([*draw.sample(known, draw.randint(0, len(known))), *lines])


def _graph(draw: Random, given: Input) -> Input:
    """A knowledge graph or rules with odd lines, absent or no file at all."""
    names = {
        "train.txt": KNOWN,
        "test.txt": KNOWN,
        "valid.txt": KNOWN,
        "rules.txt": (RULE,),
        "domain2constants.txt": ("europe france", "in 1 europe"),
    }
    steps: list[Step] = [("folder", "data")]
    steps += [
        ("file", f"data/{name}", _lines(draw, known))
        for name, known in names.items()
        if name in ("train.txt", "test.txt") or draw.random() < 0.4
    ]
    if draw.random() < 0.4:
        steps += _spoilt(draw, f"data/{draw.choice(list(names))}")
    rules = draw.choice(("own", "mine", "data/rules.txt", "data", *SPECIAL, "rules", "file"))
    steps += [("file", "rules", _lines(draw, (RULE,)))]
    return evolve(
        given,
        words=(
            *given.words,
            "--data",
            draw.choice(("data", "data", "data", "data/", "./data", "rules")),
            "--rules",
            rules,
        ),
        steps=tuple(steps),
    )


def _spoilt(draw: Random, path: str) -> list[Step]:
    """Something else where a file of data should be."""
    ways: Sequence[list[Step]] = (
        [("remove", path)],
        [("remove", path), ("folder", path)],
        [("remove", path), ("fifo", path)],
        [
            ("remove", path),
            ("link", path, draw.choice(("/dev/zero", "nowhere", "/proc/self/mem", path, f"../{OTHERS}/kept.txt"))),
        ],
        [("mode", path, "0000")],
        [("cut", path, str(draw.randrange(10**6)))],
        [("flip", path, str(draw.randrange(10**6)))],
        [("file", path, draw.choice((*VALUES, *LINES, PICKLE)))],
    )
    return draw.choice(ways)


MODEL = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
)
MAPS = '{"AutoModelForCausalLM": "canary.Thing", "AutoConfig": "canary.Thing", "AutoTokenizer": ["canary.Thing", null]}'
TEMPLATE = "{{ cycler.__init__.__globals__.os.system('touch CANARY') }}"


def _model(draw: Random, given: Input) -> Input:
    """A folder with a model that is damaged, that brings code along, or that is none."""
    steps: list[Step] = [("run", "had", "zorplex"), ("file", "had/model/canary.py", "open('CANARY', 'w')")]
    for _ in range(draw.choice((1, 1, 2))):
        file, number = f"had/model/{draw.choice(MODEL)}", str(draw.randrange(10**6))
        steps += draw.choice(
            (
                [("json", file, number, draw.choice(VALUES))],
                [("json", file, number, draw.choice(VALUES))],
                [("key", file, number, "-")],
                _spoilt(draw, file),
                [
                    ("merge", "had/model/config.json", "auto_map", MAPS),
                    ("merge", "had/model/config.json", "model_type", '"mine"'),
                ],
                [
                    ("merge", "had/model/tokenizer_config.json", "auto_map", MAPS),
                    ("merge", "had/model/tokenizer_config.json", "tokenizer_class", '"Thing"'),
                ],
                [("merge", "had/model/tokenizer_config.json", "chat_template", json.dumps(TEMPLATE))],
                [("file", "had/model/chat_template.jinja", TEMPLATE)],
                [("remove", "had/model/model.safetensors"), ("file", "had/model/pytorch_model.bin", PICKLE)],
            )
        )
    more = draw.choice(((), (), ("--lora", "2")))
    return evolve(
        given,
        words=(*given.words, "--model", draw.choice(("had/model", "had/model", "had", "project", *TEXT[:8])), *more),
        steps=tuple(steps),
    )


def _module(draw: Random, given: Input) -> Input:
    """Functions of a module that are none, fail, or are not there; odd templates."""
    names = (
        "canary.touch",
        "canary.Thing",
        "canary.nothing",
        "canary",
        "nowhere.f",
        "canary.fails",
        "os.system",
        "math.pi",
        "",
        ".",
        "a.",
        ".a",
        "victims.wrong",
    )
    template = draw.choice(
        (
            *TEXT,
            "{problem}{curr_summary}",
            "{problem.__class__}{curr_summary}",
            "{0}",
            "{problem!r:>99999999}{curr_summary}",
        )
    )
    words = draw.choice(
        (
            (draw.choice(("--solution-rollout-policy", "--summarization-rollout-policy")), draw.choice(names)),
            (draw.choice(("--reasoning-prompt-template", "--summarization-prompt-template")), template),
        )
    )
    return evolve(given, words=(*given.words, *(word.replace("\x00", "") for word in words)), trusted=True)


DATA: Mapping[str, Callable[[Random, Input], Input]] = {
    "prove": _graph,
    "zorplex": _model,
    "cache": lambda draw, given: draw.choice((_model, _module))(draw, given),
}


def _on_run(draw: Random, ground: Ground, command: str) -> Input:
    """Draw a command on a run: one that is damaged or elsewhere, or odd options."""
    fitting = {"explain": ("prove",), "chat": ("zorplex", "zorplex", "async"), "replay": ("async",)}.get(
        command, tuple(ground.runs)
    )
    kind = draw.choice([name for name in fitting if name in ground.runs] or list(ground.runs))
    whole: tuple[Step, ...] = (("run", RUN, kind), ("file", f"{RUN}/{KEPT}", "mine"))
    way, typed = draw.random(), ""
    words: tuple[str, ...] = (
        command,
        RUN,
        *(FEWER[kind] if command == "evaluate" or (command == "resume" and kind in ("ppo", "prove")) else ()),
    )
    if command == "explain":
        words = (
            command,
            draw.choice(QUERIES if draw.random() < 0.5 else LINES).replace("\x00", ""),
            "--run",
            RUN,
        )
    if command == "chat":
        words, typed = _talk(draw, words)
    if way < 0.55:
        steps, good = _damaged(draw, ground, kind)
        calm = command in ("evaluate", "resume") or words[1] in QUERIES or words[2:] == ("--task", "1")
        return Input(command, words, steps, typed, (RUN,), good=good and calm)
    if way < 0.7:
        place, steps, own = _place(draw, draw.choice(WRITTEN))
        return Input(
            command,
            tuple(place if word == RUN else word for word in words),
            steps,
            typed,
            () if command == "plot" else own,
        )
    if way < 0.8 and command in ("plot", "explain"):
        place, steps, own = _place(draw, OUT)
        return Input(
            command,
            (*words, f"--out={place}"),
            (*whole, *steps),
            typed,
            (RUN, *own, *(f"{place}/{picture}" for picture in PICTURES)),
        )
    if way < 0.85 and command == "plot":
        second = draw.choice(list(ground.runs))
        return Input(
            command, (command, RUN, "second", "--out", OUT), (*whole, ("run", "second", second)), own=(RUN, OUT)
        )
    given = _changed(draw, words, ground.options[command])
    names = (RUN, "second", OUT, "learning_curve.png", *(word.partition("=")[2] or word for word in given[2:]))
    return Input(command, given, whole, typed, names, long=_plain(given))


def _talk(draw: Random, words: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Draw a person's part in a chat, as words of the command or as lines on standard input."""
    way = draw.randrange(4)
    if way == 0:
        return (*words, "--task", "1"), ""
    if way == 1:
        return (
            *words,
            "--question",
            draw.choice((*TEXT, "zorplex[kramun] + 1", "zorplex[" * 3000)).replace("\x00", ""),
        ), ""
    return words, "\n".join(draw.choice((*TEXT, *WHOLE, "zorplex[kramun] * 2", "q")) for _ in range(draw.randint(0, 4)))


def _host(draw: Random, ground: Ground, command: str) -> Input:
    """A host: with odd addresses, engines and keys."""
    good = ("127.0.0.1:0", "localhost:0")
    address = draw.choice(good if draw.random() < 0.5 else ("127.0.0.1:1", *(text for text in TEXT if len(text) < 99)))
    key = draw.choice(("key",) if draw.random() < 0.6 else ("absent", "project", *SPECIAL, *NAMES))
    text = draw.choice(("secret" * 8,) if draw.random() < 0.6 else ("", "\n", "a", "\xff\x00", "a" * 10**5))
    steps: tuple[Step, ...] = (("file", "key", text), ("mode", "key", draw.choice(("0600", "0600", "0644", "0000"))))
    words: tuple[str, ...] = ("host", "--listen", address, "--key", key)
    if draw.random() < 0.4:
        words = _changed(draw, words, ground.options[command])
    return Input(command, words, steps, long=_plain(words))


def _verify(draw: Random, ground: Ground, command: str) -> Input:
    """Laws for what is no object of theirs, or does something when it is called."""
    targets = (
        "victims:save",
        "victims:Saver",
        "victims:saver",
        "victims:wrong",
        "victims:world",
        "victims:nothing",
        "victims",
        "victims:",
        ":",
    )
    target = draw.choice(
        (
            *targets,
            *targets,
            "canary:touch",
            "canary:Thing",
            "broken:x",
            "leaving:x",
            "os:getcwd",
            "math:pi",
            *TEXT,
            "victims:saver.save.__self__",
        )
    )
    words: tuple[str, ...] = ("verify", target)
    if draw.random() < 0.4:
        words = (
            *words,
            "--suite",
            draw.choice(
                ("env", "estimator", "loss", "machine", "scan", "checkpoint", "update", "kl", "probe", "nothing", "")
            ),
        )
    if draw.random() < 0.3:
        words = _changed(draw, words, ground.options[command])
    calls = "--call" in words or any(word.startswith("--call=") for word in words)
    return Input(
        command, words, trusted=calls or "--suite" in words or any(word.startswith("--s") for word in words), long=True
    )


COMMANDS: Mapping[str, tuple[int, Callable[[Random, Ground, str], Input]]] = {
    "help": (2, _helped),
    "train ppo": (4, _train),
    "train a2c": (2, _train),
    "train reinforce": (2, _train),
    "train prove": (5, _train),
    "train zorplex": (4, _train),
    "train cache": (4, _train),
    "evaluate": (8, _on_run),
    "explain": (4, _on_run),
    "chat": (4, _on_run),
    "resume": (7, _on_run),
    "plot": (5, _on_run),
    "host": (3, _host),
    "replay": (3, _on_run),
    "verify": (3, _verify),
}
