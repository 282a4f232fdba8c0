"""Escapes to other processes and into the kernel: starting, tracing, killing, namespaces."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from benchmarks.sandbox.attempts import Escape, at_most

PROCESSES = (
    Escape(
        "fork bomb",
        """
        import subprocess
        def bomb():
            while True:
                os.fork()
        tried(bomb)
        tried(lambda: os.posix_spawn(sys.executable, [sys.executable], {}))
        tried(lambda: subprocess.run([sys.executable, "-c", "0"]))
        tried(lambda: call(*syscall(clone=(56, 220)), 17, 0, 0, 0, 0))
        tried(lambda: call(435, bytes(88), 88))
        """,
    ),
    Escape(
        "a background process that stays behind",
        """
        import multiprocessing, subprocess
        later = [sys.executable, "-c", "import time; time.sleep(600)"]
        tried(lambda: subprocess.Popen(later, start_new_session=True))
        tried(lambda: multiprocessing.Process(target=print).start())
        def daemon():
            if os.fork() == 0:
                os.setsid()
                while True:
                    pass
        tried(daemon)
        """,
    ),
    Escape(
        "many threads",
        """
        import threading, time
        threading.stack_size(32768)
        count = 0
        try:
            while count < 5000:
                threading.Thread(target=time.sleep, args=(0.3,), daemon=True).start()
                count += 1
        except RuntimeError:
            pass
        print(count)
        """,
        at_most(1000),  # under Landlock, without root, the bound is the number of threads of the machine
    ),
    Escape(
        "ptrace, and reading another process's memory",
        """
        attach, seize = 16, 0x4206
        tried(lambda: call(*syscall(ptrace=(101, 117)), attach, VICTIM, 0, 0))
        tried(lambda: call(*syscall(ptrace=(101, 117)), seize, VICTIM, 0, 0))
        tried(lambda: call(*syscall(process_vm_readv=(310, 270)), VICTIM, 0, 0, 0, 0, 0))
        tried(lambda: call(*syscall(kcmp=(312, 272)), VICTIM, VICTIM, 0, 0, 0))
        tried(lambda: call(*syscall(pidfd_open=(434, 434)), VICTIM, 0))
        tried(lambda: call(*syscall(perf_event_open=(298, 241)), bytes(112), VICTIM, -1, -1, 0))
        """,
        harmless=True,
    ),
    Escape(
        "killing the trainer and other processes",
        """
        import fcntl, signal
        for pid in (VICTIM, -VICTIM, TRAINER):
            tried(lambda: os.kill(pid, signal.SIGKILL))
        tried(lambda: call(*syscall(tgkill=(234, 131)), VICTIM, VICTIM, 9))
        tried(lambda: call(*syscall(tkill=(200, 130)), VICTIM, 9))
        tried(lambda: call(*syscall(rt_sigqueueinfo=(129, 138)), VICTIM, 9, bytes(128)))
        def owner():
            out, into = os.pipe()
            fcntl.fcntl(out, fcntl.F_SETOWN, VICTIM)
        tried(owner)
        """,
    ),
    Escape(
        "limits, priority and cores of other processes, raising its own limits",
        """
        import resource
        none = resource.RLIM_INFINITY
        tried(lambda: resource.prlimit(VICTIM, resource.RLIMIT_CPU, (0, 0)))
        tried(lambda: os.sched_setaffinity(VICTIM, {0}))
        tried(lambda: os.setpriority(os.PRIO_PROCESS, VICTIM, 19))
        for name in ("AS", "CPU", "NPROC", "NOFILE", "FSIZE", "CORE"):
            tried(lambda: resource.setrlimit(getattr(resource, "RLIMIT_" + name), (none, none)))
        """,
    ),
    Escape(
        "becoming root, new namespaces, mounts, doors into the kernel",
        """
        tried(lambda: os.setuid(0) if os.getuid() else nothing())
        tried(lambda: os.chroot("/tmp"))
        new_user, new_mounts = 0x10000000, 0x20000
        tried(lambda: call(*syscall(unshare=(272, 97)), new_user))
        tried(lambda: call(*syscall(unshare=(272, 97)), new_mounts))
        tried(lambda: call(*syscall(mount=(165, 40)), b"none", b"/tmp", b"tmpfs", 0, 0))
        tried(lambda: call(*syscall(open_tree=(428, 428)), -100, b"/", 0))
        tried(lambda: call(*syscall(fsopen=(430, 430)), b"tmpfs", 0))
        tried(lambda: call(*syscall(bpf=(321, 280)), 0, 0, 0))
        tried(lambda: call(*syscall(keyctl=(250, 219)), 0, 0))
        tried(lambda: call(*syscall(userfaultfd=(323, 282)), 0))
        tried(lambda: call(*syscall(open_by_handle_at=(304, 265)), 0, 0, 0))
        tried(lambda: call(*syscall(sethostname=(170, 161)), b"x", 1))
        tried(lambda: call(*syscall(newer_than_the_filter=(500, 500))))
        """,
    ),
    Escape(
        "shared memory and queues that stay behind",
        """
        tried(lambda: call(*syscall(shmget=(29, 194)), 0, 4096, 0o1600))
        tried(lambda: call(*syscall(msgget=(68, 186)), 0, 0o1600))
        tried(lambda: call(*syscall(semget=(64, 190)), 0, 1, 0o1600))
        tried(lambda: call(*syscall(mq_open=(240, 180)), b"x", 0o102, 0o600, 0))
        tried(lambda: call(*syscall(memfd_create=(319, 279)), b"x", 0))
        """,
    ),
)
