"""New weights for a running vLLM server: written next to the old ones, swapped in atomically, loaded, and checked.

The server is started on a link, `ROOT/served`, made by `lay_out` before; each set of weights has a folder of its own,
`ROOT/weights/version_000007`, and the target of the link is always complete. Needs vLLM's routes for development
(VLLM_SERVER_DEV_MODE=1), which belong on a private network.
"""

import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

from ....core.errors import CheckpointError, ChoiceError, message
from ...files.reading import MOST_CONFIG, parse_json, read_bounded
from ..checkpoint.atomic_files import ABSENT, DISK, kind, new_folder
from ..hugging_face.optional import library
from .client import Server, ServerError, nothing, read_response, refused, run_job, wait_for

SERVED, WEIGHTS, PARTIAL = "served", "weights", ".partial"
HEAD = "lm_head.weight"
TOLERANCE = 1e-4  # of a log-prob; with float32 on both sides they differ by less than 2e-5


def lay_out(root: Path, save: Callable[[Path], object], *, version: int, keep: int = 2) -> Path:
    """Write weights with `save(folder)` and point ROOT/served to them; return that link. The newest `keep` folders stay.

    A process that ends at any moment leaves the link on the old weights or on the new. Raises: ChoiceError for a model
    whose head is tied to its embedding: vLLM 0.32 reloads the embedding but not the head, so that its log-probs are wrong.
    """
    home = root / WEIGHTS
    new_folder(root)
    new_folder(home)
    _check_link(root / SERVED)
    folder, partial = _free(home, f"version_{version:06d}"), home / PARTIAL
    if kind(partial) != ABSENT:
        DISK.remove(partial)
    partial.mkdir()
    save(partial)
    check_untied(partial)
    partial.rename(folder)
    link = root / f"{PARTIAL}_{SERVED}"
    _check_link(link)
    link.unlink(missing_ok=True)
    link.symlink_to(folder.relative_to(root), target_is_directory=True)
    os.replace(link, root / SERVED)
    by_age = sorted(home.glob("version_*"), key=lambda path: path.stat().st_mtime_ns)
    for old in [path for path in by_age if path != folder][: max(0, len(by_age) - max(1, keep))]:
        shutil.rmtree(old)
    return root / SERVED


def _check_link(path: Path) -> None:
    """Refuse to replace anything but a link by a link."""
    if (found := kind(path)) not in (ABSENT, "a link"):
        raise CheckpointError(message(str(path), got=found, wanted="a link", remedy="move it away"))


def _free(home: Path, name: str) -> Path:
    """Return a folder that does not exist yet: a version that is laid out again, by a run that went back, gets another."""
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(home / each for each in names if kind(home / each) == ABSENT)


def check_untied(folder: Path) -> None:
    """Refuse the folder of a model whose head is tied to its embedding, see `lay_out`. Raises: ChoiceError."""
    try:
        config = parse_json(read_bounded(folder / "config.json", MOST_CONFIG))
    except (OSError, ValueError) as cause:
        remedy = "save the model as transformers does"
        raise ChoiceError(message(f"lay_out: {folder}", got="no model", wanted="config.json", remedy=remedy)) from cause
    if config.get("tie_word_embeddings") or HEAD not in _names(folder):
        got, wanted = "tied to its embedding", "weights of its own"
        remedy = "set tie_word_embeddings=False; vLLM leaves a tied head stale when it loads weights again"
        raise ChoiceError(message("lay_out: the model's head", got=got, wanted=wanted, remedy=remedy))


def _names(folder: Path) -> set[str]:
    from safetensors import safe_open

    found: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            found |= set(file.keys())
    return found


def publish(
    server: Server,
    root: Path,
    save: Callable[[Path], object],
    *,
    version: int,
    probe: Sequence[int],
    log_probs: Sequence[float],
    tolerance: float = TOLERANCE,
    within: float = 0.0,
    waiting: Callable[[], None] = nothing,
) -> float:
    """Load new weights into the server; return the largest |server - trainer| log-prob on the probe, in nats.

    `probe` are some ids, `log_probs` those of the new weights for each of them after the first (`token_log_probs`, from
    index 1 on). If the server differs by more than `tolerance` it has other weights than those written. A server that is
    still starting, on the current link, has `within` seconds to answer; then `waiting` is called once.
    Raises: ServerError, ChoiceError.
    """
    if len(probe) < 2:
        where, remedy = "publish: probe", "give it a sequence that the model knows"
        raise ChoiceError(message(where, got=f"{len(probe)} ids", wanted="at least 2", remedy=remedy))
    if len(log_probs) != len(probe) - 1:
        wanted, remedy = len(probe) - 1, "give one for each id after the first"
        raise ChoiceError(message("publish: log_probs", got=len(log_probs), wanted=wanted, remedy=remedy))
    lay_out(root, save, version=version)
    if within > 0:
        wait_for(server, within, waiting)
    return run_job(_published(server, version, tuple(probe), tuple(log_probs), tolerance))


async def _published(
    server: Server, version: int, probe: tuple[int, ...], log_probs: tuple[float, ...], tolerance: float
) -> float:
    async with server.connect() as client:
        await _post(server, client, "/collective_rpc", {"method": "reload_weights"})
        await _post(server, client, "/reset_prefix_cache", {})
        await _told_version(server, client, version)
        theirs = await _probed(server, client, probe)
    gaps = [abs(one - other) for one, other in zip(theirs, log_probs, strict=True)]
    gap = max(gaps)
    if not all(each <= tolerance for each in gaps):
        remedy = "see that it was started on the link that lay_out gives, in float32, with an untied head"
        raise refused(server.url, "log-probs of the probe", got=f"off by {gap:.3g}", wanted=tolerance, remedy=remedy)
    return gap


async def _post(server: Server, client: Any, route: str, body: Mapping[str, Any]) -> None:
    """Call one of the server's own routes, outside of its API; once, without retries, because loading weights takes time."""
    address = f"{server.url.removesuffix('/v1')}{route}"
    patient = client.with_options(max_retries=0, timeout=server.seconds)
    await read_response(server, partial(patient.post, address, cast_to=str, body=body), str)


async def _told_version(server: Server, client: Any, version: int) -> None:
    """Send the server the number of its weights, which only its own reports show; some versions have no route for it."""
    try:
        await _post(server, client, "/update_weight_version", {"new_version": str(version)})
    except ServerError as error:
        if not isinstance(error.__cause__, library("openai").NotFoundError):
            raise


async def _probed(server: Server, client: Any, ids: tuple[int, ...]) -> tuple[float, ...]:
    body: dict[str, Any] = {
        "model": server.model,
        "prompt": list(ids),
        "max_tokens": 1,
        "extra_body": {"prompt_logprobs": 0},
    }
    reply = await read_response(server, partial(client.completions.with_raw_response.create, **body))
    try:
        (choice,) = reply["choices"]
        _, *rows = choice["prompt_logprobs"]
        found = tuple(float(row[str(token)]["logprob"]) for row, token in zip(rows, ids[1:], strict=True))
    except (KeyError, TypeError, ValueError) as cause:
        wanted, remedy = "a log-prob for each id after the first", "ask a vLLM server"
        raise refused(server.url, "prompt_logprobs", got=repr(reply)[:200], wanted=wanted, remedy=remedy) from cause
    if not all(map(math.isfinite, found)):
        remedy = "see whether its weights are sound"
        raise refused(server.url, "prompt_logprobs", got="not finite", wanted="numbers", remedy=remedy)
    return found
