"""What runs inside vLLM's worker processes: it takes broadcast weights and masks padding ids.

vLLM imports this module by name in every worker (``worker_extension_cls``).
"""
# SPDX-License-Identifier: Apache-2.0
# vLLM is an extra: the types are checked with it and without it.
# pyright: reportMissingImports=false

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from trimtab.distributed.orphans import end_with_client
from trimtab.distributed.transfer import Described, Meeting, Receiver
from trimtab.distributed.vllm_options import BACKEND
from trimtab.errors import RunError


@dataclass
class JoinInfo(WeightTransferInitInfo):
    """A meeting to come to. ``first``: the receiving rank of this engine's first worker."""

    link: str
    first: int
    host: str
    port: int
    world: int
    timeout: float
    backend: Literal["gloo", "nccl"]
    bucket_bytes: int

    @classmethod
    def of(cls, link: str, meeting: Meeting, first: int) -> JoinInfo:
        return cls(link=link, first=first, **asdict(meeting))

    @property
    def meeting(self) -> Meeting:
        return Meeting(self.host, self.port, self.world, self.timeout, self.backend, self.bucket_bytes)


@dataclass
class PushInfo(WeightTransferUpdateInfo):
    """What the push that begins now on a link will bring, in order."""

    link: str
    names: list[str]
    dtypes: list[str]
    shapes: list[list[int]]

    @classmethod
    def of(cls, link: str, described: list[Described]) -> PushInfo:
        shapes = [list(one.shape) for one in described]
        return cls(link, [one.name for one in described], [one.dtype for one in described], shapes)

    @property
    def described(self) -> list[Described]:
        parts = zip(self.names, self.dtypes, self.shapes, strict=True)
        return [Described(name, dtype, tuple(shape)) for name, dtype, shape in parts]


class BroadcastReceiver(WeightTransferEngine[JoinInfo, PushInfo]):
    """One worker's end of the broadcasts: full tensors in, its own part kept, the model changed in place."""

    init_info_cls = JoinInfo
    update_info_cls = PushInfo

    def __init__(self, *told: Any) -> None:
        super().__init__(*told)
        self.links: dict[str, Receiver] = {}

    def init_transfer_engine(self, init_info: JoinInfo) -> None:
        """Come to a meeting; an older link of the same name is left."""
        self.leave(init_info.link)
        self.links[init_info.link] = Receiver(init_info.meeting, init_info.first + self.parallel_config.rank)

    def leave(self, link: str) -> None:
        if receiver := self.links.pop(link, None):
            receiver.close()

    def start_weight_update(self) -> None:
        """Put the parameters back into the form in which weights are loaded."""
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: PushInfo) -> None:
        """Take one push. Raises: RunError when a parameter of the model was not among it."""
        wanted = {name for name, _ in self.model.named_parameters()}
        if getattr(self.model_config.hf_text_config, "tie_word_embeddings", False):
            wanted = {name for name in wanted if not name.startswith("lm_head.")}
        receiver = self.links.get(update_info.link)
        if receiver is None:
            raise RunError(f"this worker was never told of a link {update_info.link!r}")
        with contextlib.closing(receiver.receive(update_info.described)) as stream:
            model: Any = self.model
            loaded = model.load_weights(stream)
            for name, _ in stream:
                raise RunError(f"vLLM's {type(self.model).__name__} stopped reading before {name!r}")
        if missing := sorted(wanted - set(loaded or wanted)):
            raise RunError(
                f"vLLM's {type(self.model).__name__} got no new values for {len(missing)} parameters, "
                f"{missing[0]!r} among them; the names of this architecture in transformers are not those "
                "that vLLM loads: sample it with cluster.engine = 'local'"
            )

    def finish_weight_update(self) -> None:
        """Back into the form in which the model computes."""
        finalize_layerwise_reload(self.model, self.model_config)
        if self.device.type == "cpu":
            repack_heads(self.model)

    def shutdown(self) -> None:
        """Leave all links."""
        for link in list(self.links):
            self.leave(link)


def repack_heads(model: torch.nn.Module) -> None:
    """Pack output layers anew: on a CPU a tied one keeps a packed copy of the old embedding."""
    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            head: Any = module
            head.quant_method.process_weights_after_loading(head)


class WorkerExtension:
    """Methods that vLLM adds to its worker, called by name from the engine's process."""

    model_runner: Any
    weight_transfer_engine: Any

    def trimtab_mask_ids(self, vocab_size: int) -> None:
        """Give ids from ``vocab_size`` on no probability: no tokenizer knows them."""
        model = self.model_runner.get_model()
        model.compute_logits = masked(model.compute_logits, vocab_size)

    def trimtab_leave(self, link: str) -> None:
        """Close this worker's end of a link."""
        self.weight_transfer_engine.leave(link)


def masked(compute: Callable[..., Any], vocab_size: int) -> Callable[..., Any]:
    """``compute`` with -inf in the columns from ``vocab_size`` on."""

    def computed(*args: Any, **kwargs: Any) -> Any:
        logits = compute(*args, **kwargs)
        if logits is not None:  # with tensor parallelism only the first worker has them
            logits[..., vocab_size:] = -torch.inf
        return logits

    return computed


if BACKEND not in WeightTransferEngineFactory._registry:
    WeightTransferEngineFactory.register_engine(BACKEND, BroadcastReceiver)
end_with_client()
