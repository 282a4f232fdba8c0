"""The pool of processes: results, limits, crashes, concurrency, threads and loops, shutdown."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from trimtab.rewards.workers import (
    WorkerCrashedError,
    WorkerFaultError,
    WorkerPool,
    WorkerTimeoutError,
    shared_pool,
)

FUNCTIONS = """
import os, subprocess, sys, time
calls = 0
def echo(x): return x
def where(x): return [os.getpid(), "torch" in sys.modules, os.environ.get("CUDA_VISIBLE_DEVICES")]
def count(x):
    global calls
    calls += 1
    return calls
def hang(x):
    while True: pass
def nap(x): time.sleep(x); return x
def leave(x): os._exit(x)
def stop(x): sys.exit(x)
def take(x): return len(bytearray(x))
def fail(x): raise ValueError(f"no {x}")
def talk(x): print("{\\"id\\": 1}\\n" * x, flush=True); print("bye", file=sys.stderr); return x
def odd(x): return {1, 2}
def parents(x):
    child = subprocess.Popen(["sleep", "60"])
    open(x, "w").write(str(child.pid))
    while True: pass
def die(x): print("the reason", file=sys.stderr, flush=True); os.abort()
async def later(x): return x + 1
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    file = tmp_path_factory.mktemp("functions") / "functions.py"
    file.write_text(FUNCTIONS)
    return str(file)


@pytest.fixture(scope="module")
def pool():
    pool = WorkerPool(2, memory=1 << 30)
    yield pool
    pool.close()


def gone(pid):
    try:
        return open(f"/proc/{pid}/stat").read().split()[2] == "Z"
    except FileNotFoundError:
        return True


def test_results_come_back_as_they_are(pool, place):
    payload = {"text": "½ \\frac \n", "list": [1, 2.5, None, True], "big": "x" * 1_000_000}
    assert pool.call(f"{place}:echo", payload, 60.0) == payload
    assert pool.call(f"{place}:later", 1, 60.0) == 2
    assert pool.call(f"{place}:talk", 3, 60.0) == 3
    assert asyncio.run(pool.run(f"{place}:echo", "a", 60.0)) == "a"


def test_a_worker_is_another_process_without_torch_or_gpu(pool, place):
    pid, torch, devices = pool.call(f"{place}:where", 0, 60.0)
    assert pid != os.getpid()
    assert not torch
    assert devices == ""


def test_a_module_of_trimtab_is_loaded_without_its_packages(pool):
    assert pool.call("trimtab.rewards.mathematics.words:plain_words", "No Solution.", 60.0) == "no solution"


def test_a_file_is_loaded_once(place):
    pool = WorkerPool(1)
    assert [pool.call(f"{place}:count", 0, 60.0) for _ in range(3)] == [1, 2, 3]
    pool.close()


def test_a_hung_call_is_killed_and_does_not_delay_others(pool, place):
    async def both():
        began = time.monotonic()
        hung = asyncio.ensure_future(pool.run(f"{place}:hang", 0, 2.0))
        others = await asyncio.gather(*(pool.run(f"{place}:echo", k, 60.0) for k in range(40)))
        waiting = not hung.done()
        with pytest.raises(WorkerTimeoutError, match="hang gave no result within 2 s"):
            await hung
        return others, waiting, time.monotonic() - began

    pool.call(f"{place}:echo", 0, 60.0)
    others, waiting, took = asyncio.run(both())
    assert others == list(range(40))
    assert waiting
    assert took >= 2.0
    assert pool.call(f"{place}:echo", "next", 60.0) == "next"


def test_children_of_a_killed_worker_go_with_it(pool, place, tmp_path):
    note = tmp_path / "pid"
    with pytest.raises(WorkerTimeoutError):
        pool.call(f"{place}:parents", str(note), 5.0)
    pid = int(note.read_text())
    for _ in range(50):
        if gone(pid):
            break
        time.sleep(0.05)
    assert gone(pid)


@pytest.mark.parametrize(
    ("function", "payload", "error", "message"),
    [
        ("leave", 3, WorkerCrashedError, "exit code 3"),
        ("die", 0, WorkerCrashedError, "the reason"),
        ("fail", 7, WorkerFaultError, "ValueError: no 7"),
        ("stop", 1, WorkerFaultError, "SystemExit"),
        ("odd", 0, WorkerFaultError, "not JSON serializable"),
        ("nothing", 0, WorkerFaultError, "has no attribute 'nothing'"),
        ("take", 2 << 30, WorkerFaultError, "MemoryError"),
    ],
)
def test_faults_have_names_and_the_next_call_works(pool, place, function, payload, error, message):
    with pytest.raises(error, match=message):
        pool.call(f"{place}:{function}", payload, 60.0)
    assert pool.call(f"{place}:echo", 1, 60.0) == 1


def test_only_trimtab_and_files_are_run(pool, tmp_path):
    for function in ("os:system", "json:dumps", "nothing"):
        with pytest.raises(ValueError, match="a worker runs"):
            pool.call(function, "true", 1.0)
    with pytest.raises(WorkerFaultError, match="FileNotFoundError"):
        pool.call(f"{tmp_path}/absent.py:f", 0, 60.0)
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_package\n")
    with pytest.raises(WorkerFaultError, match="no_such_package"):
        pool.call(f"{broken}:f", 0, 60.0)


def test_calls_that_fail_before_they_run_leave_the_keeper_awake(place):
    pool = WorkerPool(1)
    for _ in range(3):
        with pytest.raises(WorkerFaultError, match="nothing"):
            pool.submit(f"{place}:nothing", 0, 60.0).result(timeout=60)
    assert pool.submit(f"{place}:echo", 1, 60.0).result(timeout=60) == 1
    pool.close()


def test_many_threads_and_loops_share_it(pool, place):
    found = []

    def work(k):
        found.append(asyncio.run(pool.run(f"{place}:echo", k, 60.0)))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(32))


def test_no_more_processes_than_its_size(place):
    pool = WorkerPool(2)
    futures = [pool.submit(f"{place}:where", 0, 60.0) for _ in range(50)]
    assert 1 <= len({future.result()[0] for future in futures}) <= 2
    pool.close()


def test_a_call_that_is_cancelled_while_it_waits_is_never_begun(place):
    pool = WorkerPool(1)
    first = pool.submit(f"{place}:nap", 0.5, 60.0)
    second = pool.submit(f"{place}:count", 0, 60.0)
    assert second.cancel()
    assert first.result() == 0.5
    assert pool.call(f"{place}:count", 0, 60.0) == 1
    pool.close()


def test_closing_kills_and_a_later_call_starts_anew(place):
    pool = WorkerPool(1)
    pid = pool.call(f"{place}:where", 0, 60.0)[0]
    running = pool.submit(f"{place}:hang", 0, 60.0)
    waiting = pool.submit(f"{place}:echo", 0, 60.0)
    time.sleep(0.2)
    pool.close()
    assert gone(pid)
    with pytest.raises(WorkerCrashedError):
        running.result(timeout=5)
    assert waiting.cancelled()
    assert pool.call(f"{place}:echo", 1, 60.0) == 1
    pool.close()


def test_a_killed_parent_takes_its_busy_worker_along(place):
    code = (
        "from trimtab.rewards.workers import WorkerPool\n"
        f"pool = WorkerPool(1); print(pool.call({place + ':where'!r}, 0, 60.0)[0], flush=True)\n"
        f"pool.submit({place + ':hang'!r}, 0, 60.0)\n"
        "import time; time.sleep(0.3); print('busy', flush=True); time.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert parent.stdout.readline() == "busy\n"
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    for _ in range(100):
        if gone(pid):
            break
        time.sleep(0.05)
    assert gone(pid)


def test_a_thousand_small_calls_cost_the_trainer_little(pool, place):
    pool.call(f"{place}:echo", 0, 60.0)
    began = time.process_time()
    futures = [pool.submit(f"{place}:echo", {"answer": "1/2", "gold": "0.5"}, 60.0) for _ in range(1000)]
    for future in futures:
        future.result()
    assert time.process_time() - began < 3.0  # 20,000 answers a minute of this process's own time


def test_there_is_one_shared_pool():
    assert shared_pool() is shared_pool()
