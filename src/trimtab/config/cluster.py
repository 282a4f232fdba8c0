"""The ``[cluster]`` table: which processes sample and which train."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from trimtab.errors import SettingError, nearest
from trimtab.models import DTYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmConfig:
    """The ``[cluster.vllm]`` table: what a vLLM engine is given beside the model.

    memory_share: share of a GPU's memory that one engine may take, weights and cache together, in (0, 1].
    cache_gib: GiB for the keys and values of running answers on a CPU; on a GPU they take what is left.
    max_sequences: answers that grow at once in one engine.
    max_model_len: tokens of a prompt and its answer together for which an engine must have room. 0 takes
        data.max_prompt_tokens and the longest answer, or the model's context where the former is not set.
    tensor_parallel: GPUs (or CPU processes) that share the layers of one engine.
    compile: let vLLM compile the model and capture CUDA graphs; faster tokens, a slow start.
    dtype: "auto" takes the model's.
    """

    memory_share: float = 0.85
    cache_gib: float = 1.0
    max_sequences: int = 256
    max_model_len: int = 0
    tensor_parallel: int = 1
    compile: bool = False
    dtype: str = "auto"

    def __post_init__(self) -> None:
        if not 0.0 < self.memory_share <= 1.0:
            raise SettingError(f"cluster.vllm.memory_share must be in (0, 1], got {self.memory_share}")
        if not self.cache_gib > 0.0:
            raise SettingError(f"cluster.vllm.cache_gib must be > 0, got {self.cache_gib}")
        for name in ("max_sequences", "tensor_parallel"):
            if getattr(self, name) < 1:
                raise SettingError(f"cluster.vllm.{name} must be >= 1, got {getattr(self, name)}")
        if self.max_model_len < 0:
            raise SettingError(f"cluster.vllm.max_model_len must be >= 0, got {self.max_model_len}")
        if self.dtype not in (*DTYPES, "auto"):
            raise SettingError(
                f"cluster.vllm.dtype: unknown dtype {self.dtype!r}{nearest(self.dtype, [*DTYPES, 'auto'])}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """How many processes sample and train. As it stands: one process does both, as on a laptop.

    engine: "local" samples with transformers, "vllm" with vLLM.
    engines: processes that sample; 0 samples in the run's own process.
    trainers: processes that share the weights of the trainer (FSDP2); 0 trains in the run's own process.
    staleness: updates of the weights that may lie between sampling an answer and training on it, S. 0 is the
        synchronous loop; above it, sampling of later steps goes on while a step is trained.
    in_flight: what happens to running answers when new weights come: "drain" lets them end first, so that
        an answer has one version and a run repeats exactly; "update" swaps the weights below them.
    transfer: what carries weights from trainer ranks to engines: "gloo" through the memory of CPUs, "nccl"
        from GPU to GPU, where each rank and each engine has GPUs of its own.
    address: of a Ray cluster; "" starts Ray on this machine.
    patience: seconds without any progress of a stage after which its workers' stacks are shown.
    give_up: seconds without any progress after which the run ends, to be resumed; 0 waits for ever.
    restarts: times that engines, and times that the trainer's ranks, are started anew before the run ends.
    """

    engine: Literal["local", "vllm"] = "local"
    engines: int = 0
    trainers: int = 0
    staleness: int = 0
    in_flight: Literal["drain", "update"] = "drain"
    transfer: Literal["gloo", "nccl"] = "gloo"
    address: str = ""
    patience: float = 120.0
    give_up: float = 1800.0
    restarts: int = 3
    vllm: VllmConfig = field(default_factory=VllmConfig)

    def __post_init__(self) -> None:
        for name in ("engines", "trainers", "staleness", "restarts"):
            if getattr(self, name) < 0:
                raise SettingError(f"cluster.{name} must be >= 0, got {getattr(self, name)}")
        if not self.patience > 0.0:
            raise SettingError(f"cluster.patience must be > 0 seconds, got {self.patience}")
        if self.give_up and self.give_up <= self.patience:
            raise SettingError(
                f"cluster.give_up = {self.give_up:g} seconds must be more than cluster.patience = "
                f"{self.patience:g}, or 0 to wait for ever: a run says what stands still before it ends"
            )
        if self.staleness and not self.engines:
            raise SettingError(
                f"cluster.staleness is {self.staleness} but cluster.engines is 0: sampling can only go "
                "on during an update in a process of its own; set cluster.engines to 1 or more, or staleness "
                "to 0"
            )
        if self.in_flight == "update" and not self.staleness:
            raise SettingError(
                "cluster.in_flight is 'update' but cluster.staleness is 0: nothing is sampled while weights "
                "come; set cluster.staleness to 1 or more, or in_flight to 'drain'"
            )
        if self.transfer == "nccl" and not (self.engines and self.trainers):
            raise SettingError(
                'cluster.transfer is "nccl" but weights do not go from ranks to engines; set cluster.engines '
                'and cluster.trainers to 1 or more, or cluster.transfer to "gloo"'
            )
        if self.address and not (self.engines or self.trainers):
            raise SettingError(
                f"cluster.address is {self.address!r} but no process is asked of that cluster; "
                "set cluster.engines or cluster.trainers to 1 or more"
            )
