"""What went wrong in a vLLM engine, in one sentence, with vLLM's own traceback where there is one."""
# SPDX-License-Identifier: Apache-2.0
# vLLM is an extra: the types are checked with it and without it.
# pyright: reportMissingImports=false

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trimtab.distributed.vllm_answers import AbortedError
from trimtab.distributed.vllm_options import EngineLog, cause_of
from trimtab.errors import DataError, RunError, SettingError, TrimtabError, WorkerLostError

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM


class Faults:
    """Explains the faults of one engine; ``mark`` is where its log was when all was well last."""

    def __init__(self, core: AsyncLLM, log: EngineLog) -> None:
        self._core, self._log = core, log
        self._mark = log.mark()

    def told(self, error: BaseException | None, broken: str) -> BaseException:
        """What to raise for a fault from the engine's loop: our own errors as they are, vLLM's explained.

        broken: why the engine's weights are unusable, "" while they are not.
        """
        mark, self._mark = self._mark, self._log.mark()
        if isinstance(error, AbortedError) and broken:
            return WorkerLostError(broken)
        if error is None:
            return RunError("sampling was cancelled in the engine's own loop")
        if isinstance(error, TrimtabError) or not _is_from_vllm(error):
            return error
        if self._core.errored:
            self._mark = mark
            return self.death()
        return RunError(f"vLLM could not do it: {_reason(error)}")

    def death(self) -> WorkerLostError:
        """The end of vLLM's processes, with the traceback that their log holds as a note."""
        traceback = self._log.traceback(self._mark)
        cause = cause_of(traceback) or "a process of it ended without a word (killed, or out of memory)"
        fault = WorkerLostError(f"the vLLM engine died: {cause}")
        if traceback:
            fault.add_note(traceback)
        return fault


def unstartable(path: str, error: Exception, traceback: str) -> Exception:
    """Why vLLM did not come up; what is the user's to mend goes through as it is."""
    if isinstance(error, SettingError | DataError):
        return error
    reason = cause_of(traceback) or " ".join(str(error).split())[:300]
    fault = RunError(f"vLLM could not be started on {path!r}: {reason}")
    if traceback:
        fault.add_note(traceback)
    return fault


def _is_from_vllm(error: BaseException) -> bool:
    """Its own classes; what its workers raise comes back as a bare Exception."""
    return type(error) is Exception or type(error).__module__.startswith("vllm")


def _reason(error: BaseException) -> str:
    """What a worker said, without what vLLM wraps around it."""
    told = " ".join(str(error).split())
    inner = re.search(r"Worker failed with error '(.*)', please check", told)
    return (inner.group(1) if inner else told)[:500]
