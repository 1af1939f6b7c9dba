"""Recomputation of proximal log-probs, segment by segment: right before each update, for the tokens that are one version old.

With w the version of a token, its proximal log-prob is the one under the weights w + 1, or w as long as there are none newer
(`algorithms.staleness.proximal_version`). Older tokens keep theirs, the newest keep those they were sampled with.
"""

import threading
from collections.abc import Iterable
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

from ....algorithms.staleness import recompute_due
from ....core.errors import StructureError, message
from .containers import everything
from .interfaces import InferenceEngine, RolloutCache, RolloutQueue, Sample
from .samples import MARK, PROXIMAL, column, finished_sample, finite_numbers, lists, patched


class ProximalRecomputer:
    """Recomputer of proximal log-probs under an engine's current weights, in the samples themselves.

    A sample that lacks a field, or for which the engine fails or returns invalid values, is left unchanged and a warning is
    logged; it is then kept or left out by its age. Thread-safe: one thread recomputes at a time.
    """

    def __init__(self, inference_engine: InferenceEngine, logger: Any) -> None:
        self._engine = inference_engine
        self._logger = logger
        self._lock = threading.RLock()

    def recompute_all(self, output_queue: RolloutQueue, result_cache: RolloutCache) -> None:
        """Recompute all samples in cache and queue, also those that arrive meanwhile. Call it right before the weights change.

        The cache comes first. Samples that arrive between this call and the change are missed: `WorkflowExecutor.updating`
        holds them back, and recomputes them as well.
        """
        with self._lock:
            seen = dict[int, Sample]()  # keeps each sample, so that no other one can have its identity
            while fresh := self._fresh(output_queue, result_cache, seen):
                self.recompute_samples(fresh)
                seen.update((id(item), item) for item in fresh)

    def recompute_samples(self, samples: Iterable[Sample]) -> None:
        """Recompute these samples, wherever they are: e.g. an engine's own, which it continues with the new weights."""
        with self._lock:
            for sample in samples:
                try:
                    current = self._engine.get_version()
                    if isinstance(sample, TensorDictBase):
                        self._recompute(sample, current)
                    else:
                        ids, version, _ = lists(sample)
                        self._recompute_lists(sample, current, len(ids) - len(version))
                except Exception as error:
                    self._warn(error)

    def recompute_for_sample(self, trajectory: dict[str, Any], prompt_len: int) -> None:
        """Recompute one sample of plain lists whose newest token is of the version before the engine's; others are unchanged.

        Requests the log-probs from `prompt_len` on, and replaces the old list by a new one. Older tokens keep their values.
        """
        with self._lock:
            try:
                current = self._engine.get_version()
                if max(trajectory["output_version"], default=current) == current - 1:
                    self._recompute_lists(trajectory, current, prompt_len)
            except Exception as error:
                self._warn(error)

    def recompute_batch(self, batch: list[dict[str, Any]], prompt_len: int) -> None:
        """Apply `recompute_for_sample` to each sample in turn."""
        for trajectory in batch:
            self.recompute_for_sample(trajectory, prompt_len)

    def _fresh(self, queue: RolloutQueue, cache: RolloutCache, seen: dict[int, Sample]) -> list[Sample]:
        later = everything(queue)  # first, since samples move from here to the cache
        items = {id(item): item for item in (*cache.get_all(), *later)}
        return [item for name, item in items.items() if name not in seen]

    def _recompute_lists(self, sample: dict[str, Any], current: int, start: int) -> None:
        ids, version, old = lists(sample)
        if current - 1 not in version:
            return
        if len(ids) - start != len(version):
            got, wanted = f"{len(ids) - start} tokens after the prompt", f"{len(version)}, as output_version"
            raise StructureError(message("sample: input_ids", got=got, wanted=wanted, remedy="see prompt_len"))
        scored = self._engine.recompute_output_logprobs_sync(input_ids=ids, start_index=start)
        sample[PROXIMAL] = patched(old, finite_numbers(scored, len(version)), version, current)
        sample[MARK] = current

    def _recompute(self, sample: TensorDictBase, current: int) -> None:
        found, old = finished_sample(sample), column(sample, PROXIMAL)
        ids, due = column(sample, "input_ids"), recompute_due(found.version, found.mask, current)
        if not due.any():
            return
        if ids.shape != old.shape or ids.numel() != due.numel():
            got, wanted = f"{list(old.shape)}", f"{list(ids.shape)}, as input_ids"
            raise StructureError(message(f"sample: {PROXIMAL}", got=got, wanted=wanted, remedy="one for each token"))
        there = sample.get("attention_mask", torch.ones_like(ids)).reshape(-1, ids.shape[-1]).bool()
        rows = zip(*(one.reshape(-1, ids.shape[-1]) for one in (ids, found.mask, due, old)), there, strict=True)
        # All rows first, then one assignment: concurrent readers see the old column or the new one.
        new = torch.stack([self._row(*row) for row in rows]).reshape(old.shape)
        sample.set(PROXIMAL, new)
        sample.set(MARK, torch.full(sample.batch_size, current, device=ids.device))

    def _row(self, ids: Tensor, mask: Tensor, due: Tensor, old: Tensor, there: Tensor) -> Tensor:
        """Return the proximal log-probs of one sequence: [L] each."""
        if not due.any():
            return old
        places = there.nonzero()[:, 0]
        start = int(mask[places].int().argmax())  # the first token that was sampled
        scored = self._engine.recompute_output_logprobs_sync(input_ids=ids[places].tolist(), start_index=start)
        values = torch.tensor(finite_numbers(scored, len(places) - start), dtype=old.dtype, device=old.device)
        new = old.clone()
        new[places[start:]] = values
        return torch.where(due, new, old)

    def _warn(self, error: Exception) -> None:
        self._logger.warning(f"proximal log-probs of a sample are left as they were: {error!r}")
