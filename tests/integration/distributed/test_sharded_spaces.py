"""Checkpoints of ranks on two hosts: a link goes down or a host is lost in the middle of a save, and nothing is lost by it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from attrs import frozen

from purestep.runtime.effects.checkpoint import load

from ...support.engine_spaces import Space
from ...support.forks import Forks, forks
from ...support.network_spaces import device, lose, switched
from ...support.programs import until
from ...support.sharded_hosts import FIRST, LAST, SECOND, begun, trained

pytestmark = pytest.mark.slow

LOST = "a rank is lost ("
MEND = "), wanted all of them; start them again from the newest checkpoint\n"


@frozen
class World:
    """Two ranks on two hosts, and what they write."""

    place: Path
    how: str
    children: tuple[int, ...]
    spaces: tuple[Space, ...]

    def told(self, rank: int) -> str:
        """What a rank said at its end."""
        return (self.place / f"told {self.how} {rank}").read_text()

    def go(self) -> None:
        """The save that is held up may go on."""
        (self.place / "go").touch()


def started(server: Forks, place: Path, port: int, spaces: Sequence[Space], how: str) -> World:
    """The program on a rank in each of the namespaces."""
    place.mkdir(exist_ok=True)
    place_of = {"MASTER_ADDR": spaces[0].address, "MASTER_PORT": port, "WORLD_SIZE": len(spaces)}
    children = [
        server.start(
            place / f"told {how} {rank}",
            how,
            place,
            module="sharded_hosts",
            space=space.name,
            environment={"RANK": rank, "GLOO_SOCKET_IFNAME": device(space), **place_of},
        )
        for rank, space in enumerate(spaces)
    ]
    return World(place, how, tuple(children), tuple(spaces))


@pytest.fixture(scope="module")
def there() -> Iterator[Sequence[Space]]:
    with switched(4) as found:
        yield found


@pytest.fixture(scope="module")
def server() -> Iterator[Forks]:
    with forks("sharded_hosts") as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is a file system: syncing is tested elsewhere, and may take long on a busy disk."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as found:
        yield Path(found)


def worlds(server: Forks, folder: Path, port: int, near: Space, far: Space) -> dict[str, World]:
    """Three of them, each in the middle of a save: the last rank, which holds it up, is far, far and near."""
    plan = {"at once": (near, far), "later": (near, far), "first is far": (far, near)}
    folder.mkdir()
    made = {
        name: started(server, folder / name.replace(" ", ""), port + i, spaces, "later" if i == 1 else "at once")
        for i, (name, spaces) in enumerate(plan.items())
    }
    for world in made.values():
        until((world.place / "middle").exists, "a save is in the middle")
    return made


def the_one_before_is_whole(world: World) -> None:
    run = world.place / "run"
    path = run / "checkpoints" / f"step_{FIRST:06d}"
    assert load.latest(run, report=pytest.fail) == path
    tree, wanted = load.load(path, begun()).tree, trained(begun(), FIRST)
    assert all(torch.equal(tree[name], leaf) for name, leaf in wanted.items())


def it_goes_on(server: Forks, world: World, spaces: Sequence[Space], port: int) -> None:
    """On as many ranks as there are namespaces: the checkpoints have the bits of a run that never stopped."""
    it_ended_well(server, started(server, world.place, port, spaces, "again"))


def it_ended_well(server: Forks, world: World) -> None:
    codes = [server.code(child) for child in world.children]
    assert codes == [0] * len(world.spaces), world.told(0)
    root = world.place / "run" / "checkpoints"
    names = [f"step_{step:06d}" for step in (FIRST, SECOND, LAST)]
    assert sorted(one.name for one in root.iterdir()) == ["latest", *names]
    for step, name in zip((FIRST, SECOND, LAST), names, strict=True):
        tree, wanted = load.load(root / name, begun()).tree, trained(begun(), step)
        assert all(torch.equal(tree[key], leaf) for key, leaf in wanted.items())
    second, last = (files_of(root / name) for name in names[1:])
    assert second == last


def files_of(path: Path) -> dict[str, int]:
    """Sizes of a checkpoint's files, but of those that hold numbers as text."""
    found = {one.relative_to(path).as_posix(): one.stat().st_size for one in path.rglob("*") if one.is_file()}
    return {name: size for name, size in found.items() if not name.endswith(("manifest.json", ".metadata"))}


def one_line(told: str) -> bool:
    return told.startswith(LOST) and told.endswith(MEND) and told.count("\n") == 1 and "[" not in told


def test_a_link_goes_down_in_the_middle_of_a_save(server: Forks, there: Sequence[Space], folder: Path) -> None:
    near, far = there[:2]
    made = worlds(server, folder / "cut", 7100, near, far)
    far.cut()
    stays = made["at once"]  # whose last rank writes on, long after everybody has given it up
    for world in made.values():
        if world is not stays:
            world.go()
    codes = {name: [server.code(child) for child in world.children[:1]] for name, world in made.items()}
    codes |= {
        name: [*codes[name], server.code(world.children[1])] for name, world in made.items() if world is not stays
    }
    assert codes == {"at once": [1], "later": [1, 1], "first is far": [1, 1]}
    for world in made.values():
        assert one_line(world.told(0)), world.told(0)
        the_one_before_is_whole(world)
    a_rank_that_was_given_up_writes_into_nothing(server, stays, near)
    for world in made.values():
        assert one_line(world.told(1)) or world is stays, world.told(1)
    far.mend()
    for number, world in enumerate(made.values()):
        if world is not stays:
            it_goes_on(server, world, there[number : number + 2 + number], 7110 + number)


def a_rank_that_was_given_up_writes_into_nothing(server: Forks, world: World, near: Space) -> None:
    """It is let go on while ranks that were started in place of the first ones are in the middle of the same step."""
    mark = world.place / "again"
    mark.mkdir()
    another = started(server, world.place, 7120, (near, near), "again held up")
    until((mark / "middle").exists, "a save is in the middle")
    world.go()
    assert server.code(world.children[1]) == 1
    (mark / "go").touch()
    it_ended_well(server, another)


def test_a_host_is_lost_in_the_middle_of_a_save(server: Forks, there: Sequence[Space], folder: Path) -> None:
    near, far = there[2:]
    made = worlds(server, folder / "lost", 7200, near, far)
    lose(far)
    made["first is far"].go()
    left = {name: int(name == "first is far") for name in made}  # the rank that is left
    for name, world in made.items():
        assert server.code(world.children[left[name]]) == 1
        assert one_line(world.told(left[name])), world.told(left[name])
        the_one_before_is_whole(world)
    for number, world in enumerate(made.values()):
        it_goes_on(server, world, [near, *there[:2]][: number + 1], 7210 + number)
