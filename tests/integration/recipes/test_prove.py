"""Learning to prove from the command line: what it prints, draws and writes, and what it says when something is wrong."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from purestep.core.logic.terms import atom_numbers, atom_text
from purestep.runtime.cli import main
from purestep.runtime.effects import folder
from purestep.runtime.effects.layout import names_of
from purestep.runtime.logic.proofs import Proofs
from purestep.runtime.recipes import explain_query, prove, ranking
from purestep.runtime.recipes.prove_settings import Search, prove_defaults
from purestep.runtime.runs import loop_state
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.arguments import changed
from purestep.runtime.runs.run import arguments_in

NET = ["--size", "8", "--width", "8", "--blocks", "1", "--warm-up", "3"]
RUN = ["--envs", "4", "--horizon", "8", "--minibatches", "2", "--epochs", "1", "--backend", "none"]
ASKED = ["--candidates", "3", "--queries", "4", "--slots", "8"]
TINY = ["--data", "family:30", "--steps", "96", *NET, *RUN, *ASKED]
PNG = b"\x89PNG"
Said = pytest.CaptureFixture[str]

TRAIN = (
    "in(france, europe).\nin(peru, america).\nborders(spain, france).\nborders(portugal, spain).\nin(spain, europe).\n"
)
RULES = "in(X, Z) :- borders(X, Y), in(Y, Z).\n"


def train(run: Path, *words: str) -> int:
    return main.main(["train", "prove", "--run", str(run), *TINY, *words])


def lines_after(out: str, word: str) -> list[str]:
    return [line.removeprefix(word) for line in out.splitlines() if line.startswith(word)]


def one_line(capsys: Said) -> str:
    said = capsys.readouterr().err.splitlines()
    faults = [line for line in said if line.startswith("purestep: ")]
    assert len(faults) == 1, said
    assert said[-1] == faults[0]
    return faults[0]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "one"
    assert train(run) == 0
    return run


@pytest.fixture(scope="module")
def made() -> Proofs:
    return prove.load_proofs(prove_defaults("family:30"))


@pytest.fixture
def countries(tmp_path: Path) -> Path:
    """A data set as somebody would write it."""
    place = tmp_path / "countries"
    place.mkdir()
    for name, text in {"train.txt": TRAIN, "test.txt": "in(portugal, europe).\n", "rules.txt": RULES}.items():
        (place / name).write_text(text)
    return place


def test_the_words(made: Proofs) -> None:
    """What the tests below ask about is in the data."""
    assert made.dataset.test[2] == ("father", "p014", "p028")


# --- whole runs ---


def test_train_ranks_draws_a_proof_and_a_curve_and_says_what_it_took(tmp_path: Path, capsys: Said) -> None:
    run = tmp_path / "run"
    assert train(run) == 0
    out = capsys.readouterr().out
    titles = [line.split(":")[0] for line in out.splitlines()]
    assert titles == ["evaluation", "evaluation", "evaluation", "proof", "learning curve", "time"]
    assert "evaluation: policy's most probable proof, 8 rankings among 3 filtered negatives: MRR " in out
    assert "evaluation: confidence of proofs (" in out
    assert ", 8 rankings among all entities, filtered: MRR " in out
    assert lines_after(out, "proof: ") == [str(run / "proof.png")]
    for name in ("proof.png", "learning_curve.png"):
        assert (run / name).read_bytes().startswith(PNG)
    written = json.loads((run / "evaluation.json").read_text())
    assert (written["candidates"], written["queries"], written["iteration"]) == (24, 8, 3)
    assert 0 < written["mean_reciprocal_rank"] <= 1
    assert {path.name for path in run.iterdir()} >= {folder.MARKER, *names_of("prove")} - {"view.html"}


def test_without_steps_the_rules_alone_rank_and_explain(tmp_path: Path, capsys: Said) -> None:
    run = tmp_path / "run"
    for command in (["train", "prove", "--run", str(run), *TINY, "--steps", "0"], ["resume", str(run), *ASKED]):
        assert main.main(command) == 0
        out = capsys.readouterr().out
        assert [line.split(":")[0] for line in out.splitlines()] == ["evaluation", "evaluation", "proof", "time"]
        assert len(lines_after(out, "evaluation: confidence of proofs (")) == 2
        assert (run / "proof.png").read_bytes().startswith(PNG)
    assert main.main(["explain", "father(p014, p028)", "--run", str(run)]) == 0
    assert "father(p014, p028): 1 answer, " in capsys.readouterr().out
    for words in (["--score", "policy"], ["--guide", "policy"], ["--search", "greedy"], ["--search", "sample:4"]):
        assert main.main(["evaluate", str(run), *words]) == 1
        said = one_line(capsys)
        assert said.startswith(f"purestep: {words[0]} is {words[1]}, wanted ")
        assert said.endswith(", as --steps 0 trains no policy; leave it out")


@pytest.mark.parametrize("steps", ["0", "96"])
def test_a_policy_that_imitates_a_search_ranks_with_own_moves_or_without(
    steps: str, tmp_path: Path, capsys: Said
) -> None:
    run, imitation = tmp_path / "run", ["--imitated-facts", "8", "--imitation-steps", "3", "--imitation-rounds", "2"]
    assert (
        main.main(["train", "prove", "--run", str(run), *TINY, *imitation, "--steps", steps, "--score", "policy"]) == 0
    )
    said = capsys.readouterr()
    assert "round 2 of 2: searching for proofs of 8 train facts" in said.err
    assert "evaluation: policy's search exact, 8 rankings among 3 filtered negatives: MRR " in said.out
    assert main.main(["evaluate", str(run), *ASKED, "--score", "policy", "--search", "greedy"]) == 0
    assert "evaluation: policy's most probable proof, 8 rankings" in capsys.readouterr().out


@pytest.mark.slow
def test_the_picture_is_the_deepest_proof_among_the_first_test_queries(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    wanted = explain_query.Explanation(("drawn",), trained)

    def drawn(prover: explain_query.Prover, *given: Any) -> explain_query.Explanation:
        told.append(given)
        return wanted

    monkeypatch.setattr(explain_query, "draw_attempt", drawn)
    prover = explain_query.prover_of(trained)
    assert explain_query.deepest(prover) == wanted.picture
    ((attempt, tree, out),) = told
    every = prover.tried(prover.made.dataset.test)
    heights = [other.height() for end, other in every if end.end == "proven"]
    assert attempt.end == "proven"
    assert tree.height() == max(heights) > 1
    assert out == trained / "proof.png"


@pytest.mark.slow
def test_without_a_proof_there_is_no_picture_and_that_is_said(countries: Path, tmp_path: Path, capsys: Said) -> None:
    run = tmp_path / "run"
    (countries / "test.txt").write_text("in(peru, europe).\n")
    assert train(run, "--data", str(countries)) == 0
    said = capsys.readouterr()
    assert "no picture of a proof: none of the first test queries was proven" in said.err
    assert lines_after(said.out, "proof: ") == []
    assert not (run / "proof.png").exists()


@pytest.mark.slow
def test_training_anew_removes_the_old_proof(countries: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert train(run) == 0
    (countries / "test.txt").write_text("in(peru, europe).\n")
    assert train(run, "--data", str(countries), "--overwrite") == 0
    assert not (run / "proof.png").exists()


@pytest.mark.slow
def test_evaluate_ranks_what_it_is_told_to(trained: Path, capsys: Said) -> None:
    said = []
    for words in (["--draw", "1"], ["--draw", "1"], ["--split", "valid", "--queries", "0"], []):
        assert main.main(["evaluate", str(trained), "--candidates", "2", "--queries", "5", *words]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "10 rankings among 2 filtered negatives: MRR " in said[0]
    assert "10 rankings among all entities, filtered: MRR " in said[0]
    written = json.loads((trained / "evaluation.json").read_text())
    assert written["options"] == {
        "candidates": 2,
        "split": "test",
        "queries": 5,
        "slots": 256,
        "draw": 0,
        "ties": "realistic",
        "score": "both",
        "protocol": "both",
        "learn": 0,
        "embedding": "none",
        "search": "exact",
        "guide": "confidence",
        "depth": 2,
        "expansions": 1000,
        "join": "valid",
    }
    assert [(row["score"].split()[0], row["protocol"]) for row in written["rankings"]] == [
        ("policy's", "2 filtered negatives"),
        ("confidence", "2 filtered negatives"),
        ("confidence", "all entities, filtered"),
    ]
    assert set(written["rankings"][1]["by_argument"]) == {"head", "tail"}
    assert (written["candidates"], written["queries"]) == (20, 10)
    assert len(written["positives"]) > 1
    count = len(prove.load_proofs(prove_defaults("family:30")).dataset.valid)
    assert f"{2 * count} rankings among 2 filtered negatives: " in said[2]


@pytest.mark.parametrize("command", [pytest.param("evaluate", marks=pytest.mark.slow), "resume"])
def test_help_has_the_options_of_both_kinds_of_runs_and_with_a_run_its_own(
    command: str, trained: Path, capsys: Said
) -> None:
    ranking = ["--candidates", "--split", "--queries", "--slots", "--draw", "the run's folder"]
    assert main.main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert [word for word in [*ranking, "--episodes", "purestep train prove"] if word not in text] == []
    assert main.main([command, str(trained), "--help"]) == 0
    text = capsys.readouterr().out
    assert [word for word in ranking if word not in text] == []
    assert "--episodes" not in text
    assert main.main([command, str(trained), "--episodes", "3"]) == 2


def test_plot_draws_the_run(trained: Path, tmp_path: Path, capsys: Said) -> None:
    assert main.main(["plot", str(trained), "--out", str(tmp_path / "curve.png")]) == 0
    assert (tmp_path / "curve.png").read_bytes().startswith(PNG)


@pytest.mark.slow
def test_a_run_stopped_by_ctrl_c_and_resumed_has_the_bits_of_one_never_stopped(
    trained: Path, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, calls = loop_state.LoopState.train, iter(range(1, 100))

    def interrupted(self: loop_state.LoopState, command: Any) -> Any:
        if next(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return inner(self, command)

    run = tmp_path / "cut"
    with monkeypatch.context() as patched:
        patched.setattr(loop_state.LoopState, "train", interrupted)
        assert train(run) == 130
    assert "go on with: purestep resume" in capsys.readouterr().err
    assert not (run / "proof.png").exists()
    assert main.main(["resume", str(run), *ASKED]) == 0
    assert "8 rankings among 3 filtered negatives: MRR " in capsys.readouterr().out
    assert main.main(["evaluate", str(trained), *ASKED]) == 0
    for name in ("metrics.jsonl", "evaluation.json", "proof.png"):
        assert (run / name).read_bytes() == (trained / name).read_bytes(), name


# --- explain ---


def test_explain_tells_the_proof_and_draws_it(trained: Path, tmp_path: Path, capsys: Said) -> None:
    assert (
        main.main(["explain", "father(p014, p028)", "--run", str(trained), "--out", str(tmp_path / "x" / "a.png")]) == 0
    )
    head, first, *_, last = capsys.readouterr().out.splitlines()
    assert head.startswith("father(p014, p028): proven in ")
    assert first.split("   ")[0] == "  father(p014, p028)"
    assert "father(X, Y) :- " in first
    assert first.endswith(" choices")
    assert last == f"picture: {tmp_path / 'x' / 'a.png'}"
    assert (tmp_path / "x" / "a.png").read_bytes().startswith(PNG)


def test_explain_draws_into_the_run_unless_told_and_exits_with_0_without_a_proof(trained: Path, capsys: Said) -> None:
    (trained / "proof.png").unlink(missing_ok=True)
    assert main.main(["explain", "father(p001,p001).", "--run", str(trained)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("father(p001, p001): not proven: ")
    assert "   open\n" in out
    assert out.endswith(f"picture: {trained / 'proof.png'}\n")
    assert (trained / "proof.png").read_bytes().startswith(PNG)


def test_explain_lists_the_answers_of_an_open_query(trained: Path, capsys: Said) -> None:
    assert main.main(["explain", "father(p014, X)", "--run", str(trained), "--answers", "30"]) == 0
    out = capsys.readouterr().out
    assert "father(p014, X): " in out.splitlines()[0]
    assert "known fact" in out
    assert "father(X, Y) :- " in out
    assert "confidence 0." in out
    assert main.main(["explain", "father(X, p028)", "--run", str(trained), "--json", "--search", "beam:100000"]) == 0
    told = json.loads(capsys.readouterr().out)
    atoms = {row["atom"]: row for row in told["answers"]}
    assert atoms["father(p014, p028)"]["proofs"] > 0
    assert told["complete within the bounds"] is True
    prover = explain_query.prover_of(trained)
    both = explain_query.answer_queries(prover, [("father", "X", "p028"), ("father", "p014", "p028")], Search())
    assert {answer.atom for answer in both[0].answers} == set(atoms)
    assert [answer.atom for answer in both[1].answers] == ["father(p014, p028)"]


@pytest.mark.parametrize(
    "words",
    [
        ["--score", "policy", "--search", "sample:3", "--protocol", "all"],
        [
            "--score",
            "confidence",
            "--learn",
            "20",
            "--guide",
            "policy",
            "--search",
            "beam:4",
            "--protocol",
            "negatives",
        ],
    ],
)
def test_evaluate_ranks_by_other_searches(words: list[str], trained: Path, capsys: Said) -> None:
    assert main.main(["evaluate", str(trained), "--queries", "3", "--candidates", "4", *words]) == 0
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 1
    assert words[3] in told[0] or "learned confidence of proofs" in told[0]


@pytest.mark.slow
def test_explain_speaks_of_states_that_training_passed_over(tmp_path: Path, made: Proofs, capsys: Said) -> None:
    run = tmp_path / "run"
    assert train(run, "--skip-unary", "2") == 0
    prover = explain_query.prover_of(run)
    asked = made.dataset.test
    proven = [query for query, (attempt, _) in zip(asked, prover.tried(asked), strict=True) if attempt.end == "proven"]
    atom = atom_numbers(made.game.names, proven[:1])[0].tolist()
    capsys.readouterr()
    assert main.main(["explain", atom_text(made.game.names, atom), "--run", str(run)]) == 0
    out = capsys.readouterr().out
    assert ": proven in " in out
    assert "open" not in out.partition("picture: ")[0]


# --- what is wrong is one line ---


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("fathr(p014, p028)", "query: predicate is 'fathr', wanted one of .*; did you mean 'father'?"),
        ("father(p014, p28)", "query: constant is 'p28', wanted one of 30 names; did you mean 'p028'?"),
        ("father(p014, ?)", "query: constant is '?', wanted one of 30 names; take one of family:30:0, e.g. 'p001'"),
        ("father(p014)", "query is 'father(p014)', wanted relation(head, tail)"),
    ],
)
def test_a_query_that_is_none_is_refused(query: str, wanted: str, trained: Path, capsys: Said) -> None:
    assert main.main(["explain", query, "--run", str(trained)]) == 1
    line = one_line(capsys)
    assert all(part in line for part in wanted.split(".*")), line


def test_only_a_run_that_proves_explains(tmp_path: Path, capsys: Said) -> None:
    play = ["--steps", "16", "--envs", "2", "--horizon", "8", "--hidden", "8", "--backend", "none", "--episodes", "1"]
    assert main.main(["train", "a2c", "--run", str(tmp_path / "a"), *play]) == 0
    capsys.readouterr()
    assert main.main(["explain", "p(a, b)", "--run", str(tmp_path / "a")]) == 1
    assert "is a run of 'a2c', wanted one of 'prove'; name a run of: purestep train prove" in one_line(capsys)
    assert main.main(["explain", "p(a, b)", "--run", str(tmp_path / "b")]) == 1
    assert "is no folder, wanted that of a run" in one_line(capsys)


@pytest.mark.parametrize(
    "command", [["resume", "RUN"], ["evaluate", "RUN"], ["explain", "in(spain, europe)", "--run", "RUN"]]
)
@pytest.mark.slow
def test_a_run_whose_facts_have_changed_is_refused(
    command: list[str], countries: Path, tmp_path: Path, capsys: Said
) -> None:
    run = tmp_path / "run"
    assert train(run, "--data", str(countries)) == 0
    (countries / "train.txt").write_text(TRAIN.replace("peru", "chile"))
    capsys.readouterr()
    assert main.main([str(run) if word == "RUN" else word for word in command]) == 1
    assert f"{run} is a run on other files, wanted the same; bring back the files" in one_line(capsys)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--data", "nowhere"], "data set is 'nowhere', no folder, wanted family:PEOPLE"),
        (["--data", "family:x"], "data set is 'family:x', wanted family:PEOPLE"),
        (["--rules", "nowhere.txt"], "nowhere.txt is absent, wanted own, mine or a text file"),
        (["--minibatches", "5"], "--envs x --horizon is 32 steps an iteration, wanted a multiple of --minibatches 5"),
        (["--successors", "0"], "--successors is 0, wanted at least 1"),
        (["--gamma", "1.5"], "--gamma is 1.5, wanted a number from 0.0 to 1.0"),
        (["--warm-up", "-1"], "--warm-up is -1, wanted at least 0"),
        (["--search", "beam"], "--search is 'beam', wanted greedy, exact, beam:N or sample:N; write e.g. beam:16"),
        (["--expansions", "0"], "--expansions is 0, wanted at least 1"),
        (["--mined-length", "4"], "--mined-length is 4, wanted from 1 to 3"),
        (["--candidates", "0"], "--candidates is 0, wanted at least 1"),
        (["--size", "7", "--form", "rotate"], "--size is 7, wanted an even number for --form rotate; pass 8"),
    ],
)
def test_a_run_that_cannot_be_is_refused_before_it_begins(
    words: list[str], wanted: str, capsys: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert train(Path("run"), *words) == 1
    assert wanted in one_line(capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("rules.txt", RULES + "in(X Z) :- borders(X, Z).\n", "rules.txt, line 2 is 'in(X Z) :- borders(X, Z).'"),
        ("train.txt", TRAIN + "\nspain france\n", "train.txt, line 7 is 'spain france', wanted relation(head, tail)."),
        ("test.txt", "", "countries: test is empty, wanted facts; give it at least one fact"),
        ("rules.txt", "", "rules 'own' for countries is none, wanted rules"),
        (
            "rules.txt",
            RULES + "in(X, Y) :- nears(X, Y).\n",
            "rules.txt: bodies is about ['nears'], wanted relations of",
        ),
        (
            "rules.txt",
            "2 :: in(X, Y) :- in(Y, X).\n",
            "rules.txt, line 1: confidence is 2.0, wanted a number from 0 to 1",
        ),
        ("rules.txt", "0.5 :: in(X, Y) :- in(Y, X).\n" + RULES, "countries: confidence is absent for 1 of 2 rules"),
        ("rules.txt", "on(X, Y) :- in(Y, X).\n", "countries: train facts that a rule proves is none, wanted some"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_its_line(
    name: str, text: str, wanted: str, countries: Path, tmp_path: Path, capsys: Said
) -> None:
    (countries / name).write_text(text)
    assert train(tmp_path / "run", "--data", str(countries)) == 1
    assert wanted in one_line(capsys)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_split_without_facts_is_refused_before_training_and_in_an_evaluation(
    countries: Path, tmp_path: Path, capsys: Said
) -> None:
    run = tmp_path / "run"
    assert train(run, "--data", str(countries), "--split", "valid") == 1
    assert "countries: valid is empty, wanted facts to rank; rank another --split" in one_line(capsys)
    assert not run.exists()
    assert train(run, "--data", str(countries)) == 0
    capsys.readouterr()
    assert main.main(["evaluate", str(run), "--split", "valid"]) == 1
    assert "countries: valid is empty" in one_line(capsys)


@pytest.mark.slow
def test_missing_room_is_told_once_for_training_and_once_for_the_ranking(tmp_path: Path, capsys: Said) -> None:
    assert train(tmp_path / "narrow", "--successors", "1", "--atoms", "2") == 0
    said = sorted(line for line in capsys.readouterr().err.splitlines() if "left out" in line)
    said = sorted(said, key=lambda line: line.partition("--")[2])
    assert [line.split(" met ")[0].partition(" ")[2] for line in said] == [
        "of the training's proofs",
        "of 32 proofs tried",
    ] * 2
    assert [line.split("--")[1].split()[0].strip(",") for line in said] == [
        "atoms",
        "atoms",
        "successors",
        "successors",
    ]
    assert train(tmp_path / "wide", "--atoms", "24", "--max-depth", "2") == 0
    assert "left out" not in capsys.readouterr().err


def test_the_notice_on_training_counts_proofs(trained: Path, capsys: Said) -> None:
    prover = explain_query.prover_of(trained)
    said: list[str] = []
    too_long, too_many = ranking.lost_in_training(prover.worlds)
    assert too_long > int((prover.worlds.too_long > 0).sum())  # not only those that were under way at the end
    assert too_many == 0
    ranking.notice_left_out("of 96 proofs", too_long, too_many, said.append)
    assert said == [f"{too_long} of 96 proofs met states of more goals than --atoms, which were left out"]


def test_arguments_come_back_from_a_checkpoint(trained: Path) -> None:
    given = changed(prove_defaults("family:30"), {"steps": 96, "size": 8, "width": 8, "blocks": 1, "warm_up": 3})
    more = {"envs": 4, "horizon": 8, "minibatches": 2, "epochs": 1, "backend": "none"}
    assert explain_query.prover_of(trained).arguments == changed(given, more)
    assert arguments_in(trained)[0].name == "prove"


def test_a_run_is_started_and_resumed_from_python(tmp_path: Path) -> None:
    small: dict[str, Any] = {"data": "family:30", "size": 8, "width": 8, "blocks": 1, "warm_up": 3, "backend": "none"}
    shape: dict[str, Any] = {"steps": 96, "envs": 4, "horizon": 8, "minibatches": 2, "epochs": 1}
    done = runs.train("prove", tmp_path / "run", **small, **shape, notice=runs.silent).loop
    assert done.iteration == 3
    assert runs.resume(tmp_path / "run", notice=runs.silent).loop == done


# --- compiled ---


@pytest.mark.slow
def test_a_compiled_run_learns_ranks_and_explains(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = tmp_path / "run"
    words = ["--data", "family:50", "--steps", "8000", "--envs", "32", "--horizon", "16", "--warm-up", "200"]
    assert main.main(["train", "prove", "--run", str(run), *words, "--candidates", "10"]) == 0
    said = capsys.readouterr()
    assert "compiling the program" in said.err
    assert lines_after(said.out, "proof: ") == [str(run / "proof.png")]
    assert json.loads((run / "evaluation.json").read_text())["mean_reciprocal_rank"] > 0.3
    query = prove.load_proofs(prove_defaults("family:50")).dataset.test[0]
    assert main.main(["explain", f"{query[0]}({query[1]}, {query[2]})", "--run", str(run)]) == 0
    assert "picture: " in capsys.readouterr().out
