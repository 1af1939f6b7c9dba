"""The laws in a user's hands: what they type, and what they read when something is wrong."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from purestep.core import keys as core_keys
from purestep.core.env import Env, time_limit
from purestep.core.envs.tabular import tabular_mdp
from purestep.core.errors import ChoiceError, ShapeError, StructureError
from purestep.core.record import record, replace, select, static, tensor
from purestep.core.spaces import Box, Discrete, Fields, MultiBinary, contains
from purestep.core.steps import TimeStep, Transition, first, following
from purestep.properties import (
    EXACT,
    Broken,
    Law,
    Mutant,
    NotHere,
    Seen,
    Suite,
    Vacuous,
    Walk,
    auto_reset_laws,
    check,
    dyadic,
    env_laws,
    env_suite,
    estimator_laws,
    from_record,
    keys,
    masks,
    named_profile,
    probabilities,
    register,
    require,
    run,
    same,
    step_laws,
    verify,
)
from purestep.properties.framework import cli, profiles
from purestep.properties.framework.cli import verify_command
from purestep.properties.framework.compare import bits_of
from purestep.properties.framework.compiling import Compiled, own_code
from purestep.properties.framework.profiles import current_profile, includes, using
from purestep.properties.framework.run import absent
from purestep.properties.framework.source import render
from purestep.properties.strategies.mdps import histories
from purestep.properties.strategies.values import raw, seeds
from purestep.properties.strategies.walks import action_of
from purestep.properties.suites.estimator import reference, truncation_terminates

AnyEnv = Env[Any, Any]
pytest_plugins = ("pytester",)


def only(suite: Suite, *names: str) -> Suite:
    return suite - ({law.name for law in suite} - set(names))


@record
class SledParams:
    """What a user's world depends on."""

    start: Tensor = tensor("*", "float")
    goal: Tensor = tensor("*", "float")


@record
class SledState:
    """Where the sled is and how fast it moves."""

    position: Tensor = tensor("*", "float")
    speed: Tensor = tensor("*", "float")


def observe(state: SledState) -> Tensor:
    return torch.stack([state.position, state.speed], -1)


def sled() -> Env[SledParams, SledState]:
    """A user's world: push a sled (action 1) until it is at its goal. Right as it stands."""

    def reset(params: SledParams, key: Tensor) -> tuple[SledState, TimeStep]:
        ice = core_keys.bernoulli(key, 0.5).to(params.start.dtype)
        state = SledState(position=params.start + 0.25 * ice, speed=torch.zeros_like(params.start))
        return state, first(observe(state))

    def step(params: SledParams, state: SledState, action: Tensor, key: Tensor) -> tuple[SledState, TimeStep]:
        speed = 0.5 * state.speed + 0.5 * action
        moved = SledState(position=state.position + speed, speed=speed)
        return moved, following(observe(moved), -torch.ones_like(speed), moved.position >= params.goal)

    return Env(
        params=SledParams(start=torch.tensor(0.0), goal=torch.tensor(3.0)),
        reset=reset,
        step=step,
        observation_space=Box(0.0, 4.0, (2,)),
        action_space=Discrete(2),
    )


def sliding_in_place() -> AnyEnv:
    """The same by an author who saves an allocation."""
    env = sled()

    def step(params: SledParams, state: SledState, action: Tensor, key: Tensor) -> tuple[SledState, TimeStep]:
        state.speed.mul_(0.5).add_(0.5 * action)
        moved = SledState(position=state.position + state.speed, speed=state.speed.clone())
        return moved, following(observe(moved), -torch.ones_like(moved.speed), moved.position >= params.goal)

    return attrs.evolve(env, step=step)


def leaking_reset() -> AnyEnv:
    """An auto-reset that shows the new episode where the old one's end belongs."""
    env = time_limit(sled(), 4)

    def step(params: SledParams, state: Any, action: Tensor, key: Tensor) -> tuple[Any, TimeStep]:
        step_key, fresh_key = core_keys.split(key)
        after, timestep = env.step(params, state, action, step_key)
        over = timestep.terminated | timestep.truncated
        fresh, beginning = env.reset(params, fresh_key)
        seen = select(over, beginning.observation, timestep.observation)
        return select(over, fresh, after), replace(timestep, observation=seen, next_observation=seen)

    return attrs.evolve(env, step=step)


def sharing_params() -> AnyEnv:
    """A reset whose state is a window on the params."""
    env = sled()

    def reset(params: SledParams, key: Tensor) -> tuple[SledState, TimeStep]:
        state = SledState(position=params.start[...], speed=torch.zeros_like(params.start))
        return state, first(observe(state))

    return attrs.evolve(env, reset=reset)


test_a_right_env = check(env_suite(tolerance=EXACT), sled())


def test_an_env_that_writes_to_its_input_is_caught() -> None:
    result = verify(only(env_laws, "inputs_stay"), sliding_in_place())["inputs_stay"]
    assert result.outcome == "broken"
    assert "input 1.speed was written to, with the value it had" in result.detail
    assert result.inputs == "Walk(seed=0, actions=())"
    assert "A step writes to none of its inputs" in result.text()
    assert 'examples={"inputs_stay": [Walk(seed=0, actions=())]}' in result.text()


def test_an_env_that_leaks_the_reset_observation_is_caught() -> None:
    report = verify(auto_reset_laws(time_limit(sled(), 4)), leaking_reset())
    assert [result.law.name for result in report.failures] == ["old_episode_stays"]
    result = report["old_episode_stays"]
    assert "at an ending, next_observation: got" in result.detail
    assert result.inputs.startswith("Walk(seed=0, actions=(")
    assert len(eval(result.inputs, {"Walk": Walk}).actions) >= 4


def test_an_env_that_shares_its_params_is_caught() -> None:
    result = verify(only(env_laws, "outputs_own_storage"), sharing_params())["outputs_own_storage"]
    assert result.detail == "output 2.position is a view of input 0.start; clone it"


def test_a_printed_counterexample_can_be_pasted_back() -> None:
    suite = only(env_laws, "inputs_stay")
    found = verify(suite, sliding_in_place())["inputs_stay"].inputs
    walk = eval(found, {"Walk": Walk})
    again = verify(suite, sliding_in_place(), examples={"inputs_stay": [walk]})["inputs_stay"]
    assert (again.outcome, again.examples) == ("broken", 1)


def test_check_makes_a_pytest_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_mine="""
        from purestep.properties import check, dyadic, step_laws
        from hypothesis import strategies as st

        def doubled(x):
            return 2 * x

        def in_place(x):
            return x.mul_(2)

        laws = step_laws(st.tuples(dyadic((2,)))) - {"compiled_is_eager"}
        test_doubled = check(laws, doubled, skip={"batch_is_singles": "one world only"})
        test_in_place = check(laws, in_place)
        """
    )
    result = pytester.runpytest(
        "-p", "no:cacheprovider", "-p", "purestep.properties.framework.plugin", "--laws=quick", "-rs"
    )
    result.assert_outcomes(passed=12, failed=1, skipped=1)
    result.stdout.fnmatch_lines(["*one world only*"])
    result.stdout.fnmatch_lines(["*test_in_place[[]inputs_stay[]]*"])
    result.stdout.fnmatch_lines(["*in_place breaks the law inputs_stay*"])


def one_law(**changes: Any) -> Law:
    def check_(subject: Any, inputs: Tensor, seen: Seen) -> None:
        seen("a positive number", bool((inputs > 0).any()))
        same("twice the number", subject(inputs), 2 * inputs)

    law = Law(
        name="doubles",
        claim="f(x) = 2 x.",
        source="here",
        inputs=lambda subject: dyadic((2,)),
        check=check_,
        mutant=Mutant("triples", lambda subject: lambda x: 3 * x),
    )
    return attrs.evolve(law, **changes)


def doubled(x: Tensor) -> Tensor:
    return 2 * x


def test_suites_add_and_subtract() -> None:
    more = (one_law(name="again"),)
    suite = Suite("mine", (one_law(),)) + more
    assert [law.name for law in suite - {"doubles"}] == ["again"]
    assert suite["again"].claim == "f(x) = 2 x."
    with pytest.raises(ChoiceError, match="did you mean 'doubles'"):
        _ = suite - {"double"}
    with pytest.raises(ChoiceError, match="twice"):
        _ = suite + more
    with pytest.raises(StructureError, match="lower-case"):
        one_law(name="Not a word")


def test_skips_need_a_law_and_a_reason() -> None:
    suite = Suite("mine", (one_law(),))
    with pytest.raises(ChoiceError, match="wanted a reason"):
        verify(suite, doubled, skip={"doubles": " "})
    with pytest.raises(ChoiceError, match="doubles"):
        verify(suite, doubled, skip={"doubled": "a slip"})
    with pytest.raises(ChoiceError, match="doubles"):
        check(suite, doubled, examples={"doubled": []})
    assert verify(suite, doubled, skip={"doubles": "not today"})["doubles"].outcome == "skipped"


def test_what_never_came_makes_a_law_vacuous() -> None:
    law = one_law(needs=("a negative zero",))
    report = verify(Suite("mine", (law,)), doubled)
    assert not report
    assert report["doubles"].detail == "in 20 inputs there never was a negative zero"
    test = check(Suite("mine", (law,)), doubled)
    with pytest.raises(Vacuous, match="says nothing about doubled"):
        test(law)


def test_a_broken_law_raises_with_the_claim() -> None:
    suite = Suite("mine", (one_law(),))
    with pytest.raises(Broken, match=r"claim   f\(x\) = 2 x\."):
        check(suite, lambda x: 3 * x)(suite["doubles"])


def test_counterexamples_shrink() -> None:
    result = run(one_law(), lambda x: x.clamp(max=1.0) * 2)
    assert result.inputs == "torch.tensor([0.0, 1.25])"
    assert "got 2.0, wanted 2.5 at [1]" in result.detail


def test_a_subject_that_forgets_is_said_to_be_unsteady() -> None:
    calls: list[int] = []

    def tires(x: Tensor) -> Tensor:
        calls.append(1)
        return 2 * x + (len(calls) == 3)

    assert "not again with the same input" in run(one_law(), tires).detail


def test_what_a_subject_raises_breaks_the_law() -> None:
    def refuses(x: Tensor) -> Tensor:
        raise ValueError("no thanks")

    assert run(one_law(), refuses).detail == "raised ValueError: no thanks"


def test_a_law_that_this_machine_cannot_run_is_skipped() -> None:
    def prepare(subject: Any) -> Any:
        raise NotHere("there is no second machine")

    result = run(one_law(prepare=prepare), doubled)
    assert (result.outcome, result.detail) == ("skipped", "there is no second machine")


def test_profiles_say_how_hard_to_look() -> None:
    assert current_profile().name == "quick"
    with using(named_profile("ci")):
        assert run(one_law(), doubled).examples == 100
    assert includes(named_profile("night"), "ci")
    assert run(one_law(least="night"), doubled).detail == "runs in the profile night"
    assert run(one_law(most=3), doubled).examples == 3
    assert absent(one_law(least="night"), doubled, named_profile("ci")) == "runs in the profile night"
    with pytest.raises(ChoiceError, match="quick"):
        named_profile("quik")


def test_the_night_draws_others_and_looks_for_the_largest_of_what_is_measured() -> None:
    drawn = list[int]()

    def check_(subject: Any, inputs: int, seen: Seen) -> None:
        seen.measure("the number", inputs)
        drawn.append(inputs)

    law = one_law(inputs=lambda subject: st.integers(0, 1 << 40), check=check_)
    fixed, tried = evolve(named_profile("quick"), examples=40), list[list[int]]()
    for profile in (fixed, fixed, evolve(fixed, name="night", fixed=False)):
        drawn.clear()
        assert run(law, doubled, profile=profile).examples == 40
        tried.append([*drawn])
    assert tried[0] == tried[1]
    assert tried[2] != tried[0]
    assert max(tried[2]) > 1 << 39


def test_a_report_prints_one_line_for_each_law() -> None:
    suite = only(estimator_laws(), "recursion", "causal", "linear")
    report = verify(suite, truncation_terminates, skip={"linear": "for brevity"})
    text = str(report)
    assert text.startswith("estimator_laws, gae: 1 of 3 laws passed")
    assert "skipped linear: for brevity" in text
    assert "broken  recursion: advantages: got" in text
    assert "gae breaks the law recursion" in text


@record
class Reading:
    """A user's record."""

    value: Tensor = tensor("* D", "float")
    index: Tensor = tensor("*", "int")
    sure: Tensor = tensor("*", "bool")
    key: Tensor = tensor("* 2", "key")


@given(from_record(Reading, T=2, B=3, D=4), from_record(Transition, T=5, action=0 * torch.ones(5)))
def test_records_are_drawn_from_their_fields(reading: Reading, transition: Transition) -> None:
    assert reading.value.shape == (2, 3, 4)
    assert (reading.index.dtype, reading.sure.dtype) == (torch.int64, torch.bool)
    assert reading.key.shape == (2, 3, 2)
    assert transition.reward.shape == (5,)


def test_drawing_a_record_refuses_what_it_does_not_know() -> None:
    with pytest.raises(StructureError, match="rewrad"):
        from_record(Transition, rewrad=1.0)
    with pytest.raises(ShapeError, match=r"D=\.\.\."):
        from_record(Reading, T=2)
    with pytest.raises(StructureError, match="@record"):
        from_record(dict)
    with pytest.raises(ShapeError, match="limit"):
        dyadic((2,), limit=100)
    with pytest.raises(ShapeError, match="parts is 2, wanted at least 3; pass more parts"):
        given(probabilities((3,), parts=2))(lambda drawn: None)()


@record
class Named:
    """A record with a field that is no tensor and has a default."""

    value: Tensor = tensor("*", "float")
    name: str = static(default="plain")


@given(from_record(Named, T=2))
def test_a_static_field_keeps_its_default(drawn: Named) -> None:
    assert (drawn.name, drawn.value.shape) == ("plain", (2,))


def test_a_walk_has_actions_of_several_parts() -> None:
    space = Fields((("gear", Discrete(3)), ("wheel", MultiBinary(2))))
    walked = [action_of(space, number) for number in range(6)]
    assert all(bool(contains(space, action)) for action in walked)
    assert {int(action["gear"]) for action in walked} == {0, 1, 2}


def test_histories_that_are_too_many_to_enumerate_are_refused() -> None:
    even = torch.full((3, 2, 3), 1 / 3, dtype=torch.float64)
    mdp = tabular_mdp(even, torch.zeros(3, 2), termination=torch.full((3,), 0.5), initial=torch.ones(3))
    with pytest.raises(ShapeError, match="draw a smaller process or a shorter horizon"):
        histories(mdp, torch.full((3, 2), 0.5), 12)


def test_registered_records_are_drawn_by_type() -> None:
    register(Reading, D=2)

    @given(st.builds(lambda reading: reading, reading=st.from_type(Reading)))
    def drawn(reading: Reading) -> None:
        assert reading.value.shape == (2,)

    drawn()


@given(
    dyadic((3,)), probabilities((2, 3)), masks(2, 4), masks(2, 4, side="left", least=1), keys((2,)), raw((4,)), seeds()
)
def test_draws_are_what_they_say(
    x: Tensor, p: Tensor, right: Tensor, left: Tensor, drawn: Tensor, bits: Tensor, seed: int
) -> None:
    assert torch.equal(x * 4, (x * 4).round())
    assert torch.equal(p.sum(-1), torch.ones(2, dtype=torch.float64))
    assert torch.equal(right, right.long().cummin(-1).values.bool())
    assert bool(left[:, -1].all())
    assert drawn.shape == (2, 2)
    assert (bits.shape, bits.dtype) == ((4,), torch.float32)
    assert 0 <= seed < 1 << 16


def test_values_print_as_source() -> None:
    value: dict[str, Any] = {
        "x": torch.tensor([[1.5, float("nan")]], dtype=torch.float64),
        "walk": Walk(1, (2,)),
        "none": (),
    }
    text = render(value)
    again = eval(text, {"torch": torch, "Walk": Walk})
    assert again["walk"] == value["walk"]
    assert torch.equal(again["x"].isnan(), value["x"].isnan())
    assert again["x"].dtype == torch.float64
    assert render((doubled, [0.5])) == "(doubled, [0.5])"


def test_same_says_where_trees_differ() -> None:
    with pytest.raises(Broken, match=r"state at b: got \[2\] torch.float32, wanted \[3\] torch.float32"):
        same("state", {"b": torch.zeros(2)}, {"b": torch.zeros(3)})
    with pytest.raises(Broken, match="structure"):
        same("state", {"a": torch.zeros(1)}, {"b": torch.zeros(1)})
    same("NaN is NaN", torch.tensor(float("nan")), torch.tensor(float("nan")))
    zeros = [bits_of(torch.tensor([complex(0.0, part)])) for part in (0.0, -0.0)]
    assert [one.shape for one in zeros] == [(1, 2), (1, 2)]
    assert not torch.equal(*zeros)
    with pytest.raises(Broken, match="no good"):
        require(torch.tensor([True, False]), "no good")


MODULE = """
    import attrs
    from purestep.core.envs.cartpole import cartpole
    from purestep.core.spaces import Box
    from purestep.algorithms.kl import k1, k3
    from purestep.properties.suites import estimator

    narrow = attrs.evolve(cartpole(), observation_space=Box(-0.01, 0.01, (4,)))
    drops = estimator.drops_truncated

    def save_checkpoint():
        open("written", "w").close()
        return narrow

    def falls():
        raise ValueError("no\\nworld")

    class Saver:
        def __init__(self):
            save_checkpoint()

        def __call__(self):
            save_checkpoint()

    saver = object.__new__(Saver)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_worlds.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_worlds", raising=False)
    return tmp_path


def test_the_command_verifies_an_object(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_command(["my_worlds:k3", "--suite", "kl"]) == 0
    assert "kl_laws, k3: 6 of 6 laws passed" in capsys.readouterr().out
    words = ["my_worlds:k1", "--suite", "kl", "--declare", "never_negative=False"]
    assert verify_command([*words, "--skip", "own_sample=it may be"]) == 0
    assert "skipped own_sample: it may be" in capsys.readouterr().out
    assert verify_command(["my_worlds:narrow", "--skip", "compiled_is_eager=slow here"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("purestep verify: my_worlds:narrow broken  spaces_hold: observation after")
    assert error.count("\n") == 1


@pytest.mark.slow
def test_the_command_names_a_foreign_convention(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_command(["my_worlds:drops", "--suite", "estimator"]) == 1
    assert "its convention on truncation: drop" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["save_checkpoint", "Saver", "saver"])
@pytest.mark.parametrize("suite", ["", "env", "checkpoint", "machine"])
def test_the_command_calls_nothing_but_what_it_is_told_to_call(
    module: Path, capsys: pytest.CaptureFixture[str], name: str, suite: str
) -> None:
    assert verify_command([f"my_worlds:{name}", *(["--suite", suite] if suite else [])]) == 3
    error = capsys.readouterr().err
    assert "add --call" in error
    assert ("--suite" in error) == (not suite)
    assert error.count("\n") == 1
    assert not (module / "written").exists()


@pytest.mark.slow
def test_the_command_calls_what_it_is_told_to_call(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_command(["my_worlds:save_checkpoint", "--call", "--skip", "compiled_is_eager=slow here"]) == 1
    assert "spaces_hold: observation after" in capsys.readouterr().err
    assert (module / "written").exists()


def test_a_module_that_ends_python_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "leaving_worlds.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    assert verify_command(["leaving_worlds:world"]) == 2
    assert "leaving_worlds:world is SystemExit: 7, wanted an object" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["my_worlds:narrow", "--call"], 3, "verify: --call is an Env, wanted a function without arguments"),
        (["my_worlds:k3", "--call"], 3, "verify: --call is a function, wanted a function without arguments"),
        (["my_worlds:falls", "--call"], 2, "verify: --call is ValueError: no world, wanted an object"),
        (["my_worlds:narrow", "--suite", "machine"], 3, "verify: object is an Env, wanted MachineCase"),
        (["my_worlds:narrow", "--suite", "estimator"], 3, "verify: object for estimator is an Env, wanted a function"),
        ([":narrow"], 2, "Empty module name"),
        (["my_worlds"], 2, "wanted module:object"),
        (["my_worlds:nothing"], 2, "has no attribute 'nothing'"),
        (["nowhere:world"], 2, "No module named 'nowhere'"),
        (["my_worlds:drops"], 3, "say which laws: --suite"),
        (["my_worlds:drops", "--suite", "estimater"], 2, "did you mean 'estimator'"),
        (["my_worlds:narrow", "--skip", "inputs_stay"], 2, "wanted law=reason"),
        (["my_worlds:narrow", "--laws", "sometimes"], 2, "invalid choice"),
    ],
)
def test_the_command_says_what_it_cannot_do(
    module: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, says: str
) -> None:
    assert verify_command(arguments) == code
    assert says.removeprefix("verify: ") in capsys.readouterr().err


@pytest.mark.slow
def test_the_core_imports_no_hypothesis() -> None:
    code = "import sys, purestep.core.env, purestep.algorithms.ppo; print('hypothesis' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_the_right_estimator_needs_no_excuse() -> None:
    assert verify(estimator_laws(), reference)


def test_steps_of_several_shapes_compile_once_for_each() -> None:
    shapes = [st.tuples(dyadic((n,))) for n in (1, 2, 3, 4, 5, 6, 7, 8)]
    report = verify(only(step_laws(shapes), "compiled_is_eager"), doubled)
    assert report, str(report)


def test_a_step_that_compiles_anew_at_each_call_is_found() -> None:
    class Counts:
        number = 0

        def __call__(self, x: Tensor) -> Tensor:
            self.number += 1
            return x + self.number - self.number

    compiled = Compiled(Counts(), "eager")
    assert torch.equal(compiled(torch.ones(2)), torch.ones(2))
    with pytest.raises(Broken, match="eager compiled it 2 times for 1 shapes"):
        compiled(torch.ones(2))
    count = compiled.count
    with pytest.raises(Broken, match="compiled it 2 times"):
        compiled(torch.ones(2))
    assert compiled.count == count


def test_a_wrapper_with_code_of_its_own_calls_the_function() -> None:
    one, other = own_code(doubled), own_code(doubled)
    assert torch.equal(one(torch.ones(2)), doubled(torch.ones(2)))
    assert one.__code__ is not other.__code__


def test_the_profile_of_the_environment_comes_back_after_a_session(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        test_mine="""
        from purestep.properties.framework.profiles import current_profile

        def test_profile():
            assert current_profile().name == "ci"
        """
    )
    monkeypatch.setenv(profiles.VARIABLE, "night")
    plugin = ("-p", "no:cacheprovider", "-p", "purestep.properties.framework.plugin")
    pytester.runpytest(*plugin, "--laws=ci").assert_outcomes(passed=1)
    assert current_profile().name == "night"


def test_the_command_offers_all_profiles() -> None:
    assert cli.PROFILES == profiles.ORDER
