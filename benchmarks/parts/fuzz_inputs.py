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
    "text": (
        *("--prompts", "sums.jsonl", "--reward", "rewards.py:length", "--steps", "1", "--groups", "2", "--samples", "2"),
        *("--held-out", "2", "--max-new-tokens", "2", "--reward-workers", "1"),
    ),
    "task": (
        *("--reference", "task.py:TASK", *SPEAK, "--warm-steps", "0", "--steps", "2"),
        *("--minibatches", "1", "--capacity", "64"),
    ),
}
SWEEP = (*("--steps", "64", "--envs", "2", "--horizon", "16", "--hidden", "4", "--epochs", "1", "--minibatches", "2"),
         *("--backend", "none", "--seeds", "1", "--episodes", "2", "--threads", "1", "--gamma", "0.9,0.99"))
AT_ONCE = ("--mode", "async", "--generators", "1", "--generator-engine", "thread")
MADE: Mapping[str, tuple[str, ...]] = {  # runs that inputs have copies of, and how they are trained
    **{name: ("train", name, *TINY[name]) for name in ("ppo", "prove", "zorplex", "cache")},
    "async": ("train", "zorplex", *TINY["zorplex"], *AT_ONCE),
    "text": ("train", "text", "--model", "{runs}/zorplex/model", *TINY["text"]),
}
FEWER: Mapping[str, tuple[str, ...]] = {  # what keeps an evaluation short
    "ppo": ("--episodes", "2"),
    "prove": ASK,
    "zorplex": ("--tasks", "2"),
    "cache": ("--problems", "1", "--cycles", "2"),
    "async": ("--tasks", "2"),
    "text": ("--trust",),
}

WHOLE = (
    *("0", "-1", "1", "2", "3", "7", "1000", "1000000", "-9223372036854775808", "9223372036854775808", "1" + "0" * 30),
    *("9" * 5000, "1e3", "0x10", "1_0", "٣", "NaN", "inf", "", " ", "3.5", "--", "-", "-x", "true", "None", "1\n2", "\udcff"),
)
REAL = (
    *("nan", "inf", "-inf", "1e400", "-0.0", "0", "1e-320", "1e30", "-1", "0.5", "1", "2", "", "a", "１", "1_0", "--", "1,5"),
    *("\udcff", "9" * 5000, "0x1p3", "1e", "None"),
)
SIZES = ("99999", "1000000", "9999999", "100000000", "2147483648", "4294967297", "1000000000000", "9223372036854775807")
SPECIAL = ("/dev/zero", "/dev/null", "/proc/self/mem", "/proc/self/fd/0", "/dev/full", "/proc/self/pagemap", "fifo", "endless")
TEXT = (
    *("", " ", "a" * 5000, "a/" * 2000, "--help", "-h", "--", "\n", "\x1b[31mred", "\udcff\udcfe", "ñ", "🙂", "..", "/", "~"),
    *("%s{0}{x}", "{problem}", "{", "}", "a:b", "a.b", "canary.touch", "canary:touch", "canary_at_import.touch", "os.system"),
    *("canary.Thing", "127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:-1", ":", "::1:0", "[::1]:0", "http://127.0.0.1:1/v1"),
    *("file:///etc/passwd", "http://[::", "cuda:0", "cuda:99", "cpu", "meta", "family:0", "family:-1", "family:1", "family:3"),
    *("family:9" + "9" * 30, "family:5:" + "9" * 40, "family:٣", "family:20:", "pykeen:nations", "pykeen:", "project"),
    *("\x00", "run\x00", "a/\x00/b", "http://127.0.0.1:1\x00/v1", "family:30\x00", "²", "Ⅻ", "१२", "-0", "+1", "1_000"),
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
    "$HOME", "*", "con", "a\x1bb", "a\x00b", "\x00", "run\x00",
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
    absent: tuple[str, ...] = ()  # packages that are not there
    variables: tuple[tuple[str, str | None], ...] = ()  # of the environment; None where it is unset
    streams: str = ""  # a stream that is not as usual, of STREAMS
    most: int = 0  # bytes of a file that may be written, as on a full disk; 0 where there is room
    stop: float = 0.0  # seconds after which it is stopped; 0 where it is not
    signal: str = "INT"  # by which it is stopped


@frozen
class Ground:
    """The source of inputs beside tables: the options of each command as its help says, and the files of made runs."""

    options: Mapping[str, Sequence[tuple[str, str]]]  # command -> (option, kind of its value)
    runs: Mapping[str, Sequence[str]]
    silent: str = "127.0.0.1:9"  # address of a server that accepts and says nothing


def drawn(draw: Random, ground: Ground, commands: Sequence[str] = ()) -> Input:
    """An input, of one of these commands or of any."""
    command = draw.choice(commands or [name for name, (weight, _) in COMMANDS.items() for _ in range(weight)])
    return _elsewhere(draw, COMMANDS[command][1](draw, ground, command))


STREAMS = ("no input", "no output", "no errors", "output gone", "output full", "errors gone")
EXTRAS = (
    *(
        "transformers",
        "tokenizers",
        "safetensors",
        "openai",
        "peft",
        "datasets",
        "pyarrow",
        "pykeen",
        "gymnasium",
        "optuna",
    ),
    *("wandb", "tensorboard", "matplotlib", "hypothesis", "jinja2", "math_verify", "pettingzoo", "ray", "monarch"),
)
PLACES = (
    "",
    "/nowhere/at/all",
    "/",
    "/dev/null",
    "/dev/zero",
    "relative",
    "/root",
    "/proc/self",
    "a" * 300,
    "\udcff",
    "~",
    "$HOME",
)
SET: Mapping[str, Sequence[str | None]] = {
    **dict.fromkeys(
        ("HOME", "TMPDIR", "XDG_CACHE_HOME", "MPLCONFIGDIR", "TORCHINDUCTOR_CACHE_DIR", "HF_HOME"), (None, *PLACES)
    ),
    "COLUMNS": (None, "1", "0", "-5", "a", "", "99999999", "1" * 400, "2", "7"),
    "LINES": ("0", "a", "-1"),
    "TERM": (None, "", "dumb", "nothing"),
    **dict.fromkeys(("LANG", "LC_ALL", "LC_NUMERIC"), (None, "C", "POSIX", "nothing", "tr_TR.UTF-8", "de_DE.UTF-8")),
    **dict.fromkeys(("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_PORT"), ("a", "-1", "", "1e9", "0")),
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), ("a", "-1", "0", "")),
    "PYTHONIOENCODING": ("ascii", "latin-1", "utf-16", "nothing"),
    "PYTHONUTF8": ("0",),
    "MPLBACKEND": ("nothing", "TkAgg", ""),
    "CUDA_VISIBLE_DEVICES": ("a", "99", "-1"),
    "TZ": ("nothing", ""),
    "PYTHONHASHSEED": ("random",),
}


def _elsewhere(draw: Random, given: Input) -> Input:
    """Draw where an input is called: mostly as usual; else without a package, a stream, a place, or room on the disk."""
    way = draw.randrange(40)
    if way == 0:
        return evolve(given, absent=tuple(draw.sample(EXTRAS, draw.choice((1, 1, 2)))), good=False)
    if way == 1:
        return evolve(given, streams=draw.choice(STREAMS), good=False)
    if way == 2:
        names = draw.sample(list(SET), draw.choice((1, 1, 2)))
        return evolve(given, variables=tuple((name, draw.choice(SET[name])) for name in names), good=False)
    if way == 3:
        return evolve(given, most=draw.choice((1, 100, 1000, 5000, 20000, 100000)), good=False)
    if way == 4:
        return evolve(
            given, stop=draw.choice((0.1, 0.5, 1.0, 2.0, 4.0)), signal=draw.choice(("INT", "TERM")), good=False
        )
    return given


# --- words ---


def _value(draw: Random, kind: str) -> str:
    """Draw a text that somebody might write where a value of this kind belongs."""
    if draw.random() < 0.1:
        return draw.choice((*TEXT, *WHOLE, *REAL, *SPECIAL))
    if "INT" in kind:
        return draw.choice(SIZES if draw.random() < 0.4 else WHOLE)
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
    return tuple(word for word in changed if word != "--debug")


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
        (word, (("link", path, "loop"), ("link", "loop", path)), ()),
        (f"{word}/below", (("link", path, path),), ()),
        (word, (("folder", path), ("link", f"{path}/up", "..")), ()),
        (word, (("folder", path), ("link", held, "loop"), ("link", f"{path}/loop", inside)), ()),
        (f"{word}\x00", (("folder", path),), ()),
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
    before: tuple[Step, ...] = ()
    if recipe == "text":
        words, before = (*words, "--model", "had/model"), (("run", "had", "zorplex"),)
    if way < 0.12 and recipe in LANGUAGE:
        return evolve(
            _far(draw, ground, Input(command, (*words, "--run", RUN), before, own=(RUN,))),
            signal=draw.choice(("INT", "TERM")),
        )
    if way < 0.55:
        given = _changed(draw, (*words, "--run", RUN), ground.options[command])
        return Input(
            command,
            given,
            before,
            own=(RUN, "runs", *(word.partition("=")[2] or word for word in given[2:])),
            long=_plain(given),
            trusted=any("canary" in word for word in given),
        )
    if way < 0.75 or recipe not in DATA:
        place, steps, own = _place(draw, draw.choice((*WRITTEN, *WRITTEN_TOO)))
        more = ("--overwrite",) if draw.random() < 0.4 else ()
        written = (f"--run={place}",) if place.startswith("-") or draw.random() < 0.3 else ("--run", place)
        return Input(command, (*words, *written, *more), (*before, *steps), own=(*own, "runs"))
    if way < 0.8 and recipe in ground.runs:
        steps, _ = _damaged(draw, ground, recipe)
        return Input(command, (*words, "--run", RUN, *draw.choice(((), ("--overwrite",)))), steps, own=(RUN,))
    return DATA[recipe](draw, Input(command, (*words, "--run", RUN), before, own=(RUN,)))


LANGUAGE = ("zorplex", "cache", "text", "task")
CONFIGS = (
    *(
        "rollout: {consumer_batch_size: 2}",
        "actor: {eps_clip: .nan}",
        "a: &a [*a]",
        "a: *a",
        "[]",
        "1",
        "",
        "---\n---\n",
        "\x00",
    ),
    *(
        "a: &a [x, x]\nb: &b [*a, *a]\n"
        + "".join(f"c{n}: &c{n} [{', '.join([f'*c{n - 1}' if n else '*b'] * 9)}]\n" for n in range(12)),
    ),
    *(
        "rollout: {consumer_batch_size: 2}\nrollout: {consumer_batch_size: 3}",
        "!!python/object/apply:os.system ['touch CANARY']",
    ),
    *(
        "[" * 50000,
        "a: " * 5000,
        "{" * 900 + "}" * 900,
        "rollout: a",
        "rollout: {consumer_batch_size: '2'}",
        "actor: {eps_clip: 1e400}",
    ),
    *(
        "rollout: {consumer_batch_size: 1e30}",
        "rollout: {max_head_offpolicyness: -1}",
        "rollout: {consumer_batch_size: 9999999}",
    ),
    *(
        "\xff\xfe",
        "\ufeffrollout: {}",
        "a: b: c",
        "\ta: b",
        "? [a]\n: b",
        "1: 2",
        "null: 3",
        "enable_segment_wise_ppo: maybe",
        "'",
    ),
    *(
        "rollout: {nothing: 1}",
        "experiment_name: 'a\\0b'",
        "experiment_name: ../../..",
        "x" * 3000000,
        "2001-01-01: 2001-99-99",
    ),
)


def _far(draw: Random, ground: Ground, given: Input) -> Input:
    """A server, a host or a file of settings that is not there, is silent, or is something else."""
    silent = ground.silent
    server = draw.choice(
        (f"http://{silent}/v1", f"http://{silent}", "http://127.0.0.1:1/v1", "http://nowhere.invalid/v1", *TEXT)
    )
    words = draw.choice(
        (
            ("--server", server),
            ("--server", server, "--mode", "async", "--generators", "1", "--generator-engine", "thread"),
            ("--mode", "async", "--hosts", draw.choice((silent, "127.0.0.1:1", "nowhere.invalid:1", *TEXT))),
            ("--mode", "async", "--engine", draw.choice(("ray", "monarch", "processes")), "--generators", "1"),
            ("--wandb", draw.choice(TEXT)),
            ("--config", draw.choice(("settings", "settings", "settings", "project", "absent", *SPECIAL))),
            (
                "--config",
                draw.choice(("settings", "settings")),
                draw.choice((*TEXT, "rollout.consumer_batch_size=1", "a=b", "=")),
            ),
        )
    )
    steps: tuple[Step, ...] = (("file", "settings", draw.choice(CONFIGS)),)
    return evolve(given, words=(*given.words, *words), steps=(*given.steps, *steps), long=_plain(words))


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
NUMBERS = (
    *(
        "num_hidden_layers",
        "vocab_size",
        "max_position_embeddings",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
    ),
    *(
        "num_key_value_heads",
        "head_dim",
        "rope_theta",
        "rms_norm_eps",
        "initializer_range",
        "bos_token_id",
        "eos_token_id",
    ),
)
MAPS = '{"AutoModelForCausalLM": "canary.Thing", "AutoConfig": "canary.Thing", "AutoTokenizer": ["canary.Thing", null]}'
TEMPLATE = "{{ cycler.__init__.__globals__.os.system('touch CANARY') }}"


def _absurd(draw: Random) -> list[Step]:
    """A model of an absurd size, with its weights or without."""
    steps: list[Step] = [("remove", "had/model/model.safetensors")] if draw.random() < 0.5 else []
    for name in draw.sample(NUMBERS, draw.choice((1, 1, 2))):
        value = draw.choice(
            ("0", "-1", "3", "1000000", "1000000000000", "1" + "0" * 30, "1.5", "null", '"a"', "true", "[1, 2]")
        )
        steps.append(("merge", "had/model/config.json", name, value))
    return steps


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
                _absurd(draw),
                _absurd(draw),
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
    return evolve(given, words=(*given.words, *words), trusted=True)


PROMPTS = (
    *(
        '{"prompt": "1 + 1?", "answer": "2"}',
        '{"prompt": ""}',
        '{"prompt": 1}',
        '{"prompt": null}',
        '{"prompt": []}',
        '{"answer": 1}',
    ),
    *(
        '{"prompt": [{"role": "user", "content": "a"}]}',
        '{"prompt": [{"role": "a"}]}',
        '{"prompt": [1]}',
        '{"prompt": {"a": 1}}',
    ),
    *(
        '{"prompt": "a\\u0000b"}',
        '{"prompt": "\\ud800"}',
        '{"prompt": "a", "prompt": "b"}',
        '{"prompt": "a", "completions": 1}',
    ),
    *(
        '{"prompt": "' + "a" * 50000 + '"}',
        '{"prompt": "a", "answer": NaN}',
        '{"prompt": "a", "answer": 1e400}',
        '{"prompt": "a"}',
    ),
)
TABLES = ("sums.jsonl", "sums.csv", "sums.parquet", "sums.json", "sums", "sums.txt", "sums.jsonl.gz")
REWARDS = (
    *(
        "rewards.py:length",
        "rewards.py:fails",
        "rewards.py:nothing",
        "rewards.py:text",
        "rewards.py:nan",
        "rewards.py:none",
        "rewards.py",
    ),
    *(
        "rewards.py:few",
        "rewards.py:sleeps",
        "exact",
        "numeric",
        "regex=(",
        "regex=",
        "regex=a*",
        "math",
        "code",
        "canary.py:fails",
    ),
    *("rewards:length", "absent.py:f", "broken.py:x", "leaving.py:x", ":", "a:", ":b", "", "rewards.py:length\x00"),
)


def _prompts(draw: Random, given: Input) -> Input:
    """A file of prompts that has odd lines or is none; rewards and tools that fail or are not there."""
    table, known = draw.choice(TABLES), '{"prompt": "1 + 2?", "answer": "3"}'
    lines = "\n".join(draw.choice((known, known, known, *PROMPTS, *VALUES)) for _ in range(draw.randint(0, 8)))
    steps: list[Step] = [
        ("file", table, draw.choice((lines, lines, "\n".join([known] * 8), "prompt,answer\na,b\nc\n", *LINES)))
    ]
    if draw.random() < 0.3:
        steps += _spoilt(draw, table)
    words = draw.choice(
        (
            ("--prompts", table),
            ("--prompts", table, "--prompt-column", draw.choice(("answer", "nothing", "", "\x00"))),
            ("--prompts", draw.choice(("absent", "project", *SPECIAL))),
            ("--held-out-prompts", table),
            ("--reward", draw.choice(REWARDS)),
            ("--reward", draw.choice(REWARDS), draw.choice(REWARDS), "--weights", draw.choice(REAL), draw.choice(REAL)),
            ("--tools", draw.choice(("rewards.py", "rewards.py:length", "rewards.py:tool", "victims.py", *TEXT))),
        )
    )
    return evolve(given, words=(*given.words, *words), steps=(*given.steps, *steps), trusted=True, long=True)


def _task(draw: Random, given: Input) -> Input:
    """A task of a file that is none, fails, or is not there."""
    names = (
        "task.py:TASK",
        "task.py:nothing",
        "task.py:FAILS",
        "task.py:ODD",
        "task.py:step",
        "task.py",
        "absent.py:TASK",
        "broken.py:x",
    )
    name = draw.choice(
        (*names, *names, "leaving.py:x", "canary.py:Thing", "task:TASK", "project:TASK", "fifo.py:TASK", *TEXT)
    )
    return evolve(given, words=(*given.words, "--reference", name), trusted=True, long=True)


DATA: Mapping[str, Callable[[Random, Input], Input]] = {
    "prove": _graph,
    "text": lambda draw, given: draw.choice((_prompts, _prompts, _model))(draw, given),
    "task": lambda draw, given: draw.choice((_task, _model))(draw, given),
    "zorplex": _model,
    "cache": lambda draw, given: draw.choice((_model, _module))(draw, given),
}


def _on_run(draw: Random, ground: Ground, command: str) -> Input:
    """Draw a command on a run: one that is damaged or elsewhere, or odd options."""
    fitting = {
        "explain": ("prove",),
        "view": ("zorplex", "text", "async", "ppo", "prove"),
        "export": ("ppo", "ppo", "ppo", "prove", "zorplex"),
        "chat": ("zorplex", "zorplex", "async"),
        "replay": ("async",),
    }.get(command, tuple(ground.runs))
    kind = draw.choice([name for name in fitting if name in ground.runs] or list(ground.runs))
    whole: tuple[Step, ...] = (("run", RUN, kind), ("file", f"{RUN}/{KEPT}", "mine"))
    way, typed = draw.random(), ""
    words: tuple[str, ...] = (
        command,
        RUN,
        *(FEWER[kind] if command == "evaluate" or (command == "resume" and kind in ("ppo", "prove", "text")) else ()),
    )
    if command == "explain":
        words = (
            command,
            draw.choice(QUERIES if draw.random() < 0.5 else LINES),
            "--run",
            RUN,
        )
    if command == "export":
        words = (command, RUN, OUT, "--to", draw.choice(("safetensors", "safetensors", "safetensors", "torch", "onnx")))
    if command == "chat":
        words, typed = _talk(draw, words)
    if way < 0.1 or 0.55 <= way < 0.6:
        steps = _mixed(draw, ground, kind) if way < 0.1 else _argued(draw, kind)
        return Input(command, words, steps, typed, (RUN, "other", OUT), long=True)
    if way < 0.55:
        steps, good = _damaged(draw, ground, kind)
        calm = command in ("evaluate", "resume") or words[1] in QUERIES or words[2:] == ("--task", "1")
        return Input(command, words, steps, typed, (RUN, OUT), good=good and calm, trusted="--trust" in words)
    if way < 0.7:
        place, steps, own = _place(draw, draw.choice(WRITTEN))
        return Input(
            command,
            tuple(place if word == RUN else word for word in words),
            steps,
            typed,
            () if command == "plot" else own,
        )
    if way < 0.8 and command in ("plot", "explain", "view"):
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


MIXED = ("arguments.json", "checkpoints", "metrics.jsonl", "evaluation.json", ".purestep.json", "model", "async")


def _mixed(draw: Random, ground: Ground, kind: str) -> tuple[Step, ...]:
    """The steps that copy a made run and give it another's arguments, checkpoints or other files."""
    other = draw.choice([name for name in ground.runs if name != kind] or [kind])
    steps: list[Step] = [("run", RUN, kind), ("run", "other", other), ("file", f"{RUN}/{KEPT}", "mine")]
    for name in draw.sample(MIXED, draw.choice((1, 1, 2, 3))) if draw.random() < 0.4 else (draw.choice(MIXED[:2]),):
        steps += [("remove", f"{RUN}/{name}"), ("move", f"other/{name}", f"{RUN}/{name}")]
    return tuple(steps)


ARGUMENTS = (
    '"a"',
    '"1"',
    "1.5",
    "true",
    "null",
    "[]",
    "-1",
    "0",
    "1e400",
    "1000000000000",
    '"nan"',
    '[""]',
    "{}",
    '"\\u0000"',
)


def _argued(draw: Random, kind: str) -> tuple[Step, ...]:
    """The steps that copy a made run and put something else in place of its arguments."""
    steps: list[Step] = [("run", RUN, kind), ("file", f"{RUN}/{KEPT}", "mine")]
    for _ in range(draw.choice((1, 1, 2))):
        steps.append(("json", f"{RUN}/arguments.json", str(draw.randrange(10**6)), draw.choice(ARGUMENTS)))
    return tuple(steps)


def _sweep(draw: Random, ground: Ground, command: str) -> Input:
    """A sweep: with odd axes, options or places, or over what an earlier one left."""
    words, way = ("sweep", "ppo", *SWEEP), draw.random()
    if way < 0.3:
        place, steps, own = _place(draw, draw.choice(("sweep.jsonl", "sweep.json", ".lock", "sweep.png")))
        return Input(command, (*words, f"--run={place}"), steps, own=(*own, "runs"))
    axis = draw.choice(
        (
            "0.9,",
            ",",
            "log:0:1",
            "log:1:2",
            "log:1e-4:1e-2",
            "log:1e-4:1e-2:3",
            "linear:1:0",
            "linear:a:b",
            "log:::",
            "0.9:0.99",
        )
    )
    number = draw.choice(("--gamma", "--learning-rate", "--clip", "--envs", "--seed", "--nothing"))
    more = draw.choice(
        (
            (),
            (number, axis),
            (number, draw.choice((*REAL, *TEXT))),
            ("--samples", draw.choice(SIZES)),
            ("--seeds", draw.choice(SIZES)),
        )
    )
    halving = draw.choice(
        (
            (),
            (),
            ("--halving", draw.choice((*WHOLE, "2", "3"))),
            ("--sampler", "optuna"),
            ("--members", draw.choice(WHOLE)),
        )
    )
    given = (*words, *more, *halving, "--run", RUN)
    if way > 0.7:
        given = _changed(draw, given, ground.options[command])
    names = (RUN, "runs", *(word.partition("=")[2] or word for word in given[2:]))
    return Input(command, given, own=names, long=_plain(given), trusted=any("canary" in word for word in given))


def _laws(draw: Random, ground: Ground, command: str) -> Input:
    """Names of suites that are none, and tests that are written to odd places."""
    suite = draw.choice(("estimator", "env", "loss", "nothing", *TEXT, *WHOLE[:5]))
    if draw.random() < 0.4:
        return Input(command, ("laws", *draw.choice(((), (suite,), (suite, suite)))))
    place, steps, own = _place(draw, OUT)
    target = draw.choice(("victims:wrong", "math:pi", "victims:nothing", *TEXT))
    return Input(
        command, ("write", target, "--suite", suite, f"--out={place}"), steps, own=own, trusted=True, long=True
    )


def _talk(draw: Random, words: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Draw a person's part in a chat, as words of the command or as lines on standard input."""
    way = draw.randrange(4)
    if way == 0:
        return (*words, "--task", "1"), ""
    if way == 1:
        return (
            *words,
            "--question",
            draw.choice((*TEXT, "zorplex[kramun] + 1", "zorplex[" * 3000)),
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
    "train text": (4, _train),
    "train task": (3, _train),
    "sweep ppo": (3, _sweep),
    "evaluate": (8, _on_run),
    "explain": (4, _on_run),
    "chat": (4, _on_run),
    "resume": (7, _on_run),
    "plot": (5, _on_run),
    "view": (4, _on_run),
    "laws": (1, _laws),
    "export": (3, _on_run),
    "host": (3, _host),
    "replay": (3, _on_run),
    "verify": (3, _verify),
}
