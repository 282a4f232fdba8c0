"""Escapes to what lies outside: the network, files, folders, devices."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from benchmarks.sandbox.attempts import LIMITS, Escape, at_most

NETWORK = (
    Escape(
        "TCP to a server on this machine",
        """
        import socket
        tried(lambda: socket.create_connection(("127.0.0.1", TCP), 2))
        """,
        harmless=True,
    ),
    Escape(
        "UDP to a server on this machine",
        """
        import socket
        tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", UDP)))
        """,
        harmless=True,
    ),
    Escape(
        "sockets of other families, and a pair of datagram sockets sending elsewhere",
        """
        import socket
        for family in (socket.AF_UNIX, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET, 40):
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
                tried(lambda: socket.socket(family, kind))
        def datagrams():
            one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            one.sendto(b"x", os.path.join(OUTSIDE, "socket"))
        tried(datagrams)
        def stream():
            one, _ = socket.socketpair()
            one.sendto(b"x", os.path.join(OUTSIDE, "socket"))
            one.connect(os.path.join(OUTSIDE, "socket"))
        tried(stream)
        """,
        harmless=True,
    ),
    Escape("io_uring, which opens sockets past a filter", "tried(lambda: call(425, 4, bytes(120)))"),
)

FILES = (
    Escape(
        "reading a file outside",
        'tried(lambda: open(os.path.join(OUTSIDE, "canary")).read())',
        harmless=True,
    ),
    Escape(
        "reading the home folder, accounts, settings of the machine",
        """
        tried(lambda: set(os.listdir(HOME)) - SHELLS or nothing())
        for path in ("/etc/passwd", "/etc/shadow", "/etc/hostname", "/sys/class/net", HOME + "/.bashrc"):
            tried(lambda: open(path).read())
        """,
    ),
    Escape(
        "reading the environment of the trainer",
        """
        tried(lambda: os.environ["TRIMTAB_SECRET"])
        tried(lambda: open(f"/proc/{TRAINER}/environ").read())
        tried(lambda: set(os.environ) - WORDS or nothing())
        """,
    ),
    Escape(
        "writing outside: files, folders, devices",
        """
        import shutil
        system = ("/", "/etc", "/usr", "/usr/lib", "/var/tmp", "/dev", "/dev/shm", "/run")
        for folder in (OUTSIDE, HOME, os.path.dirname(os.__file__), *system):
            tried(lambda: open(os.path.join(folder, "escaped"), "w"))
            tried(lambda: os.mkdir(os.path.join(folder, "escaped")))
        tried(lambda: os.remove(os.path.join(OUTSIDE, "canary")))
        tried(lambda: shutil.rmtree(OUTSIDE))
        """,
    ),
    Escape(
        "changing files outside: mode, owner, dates, size, attributes",
        """
        canary = os.path.join(OUTSIDE, "canary")
        tried(lambda: os.chmod(canary, 0o777))
        tried(lambda: os.chown(canary, os.getuid(), -1))
        tried(lambda: os.utime(canary, (0, 0)))
        tried(lambda: os.truncate(canary, 0))
        tried(lambda: os.setxattr(canary, "user.x", b"x"))
        """,
        harmless=True,
    ),
    Escape(
        "symbolic and hard links to files outside",
        """
        canary = os.path.join(OUTSIDE, "canary")
        def follow(make, link, way):
            make(canary, link)
            try:
                with open(link, way) as file:
                    return file.read() if way == "r" else file.write("x")
            finally:
                os.remove(link)
        for link in ("/tmp/trimtab-link", os.path.join(OUTSIDE, "link")):
            for make in (os.symlink, os.link):
                tried(lambda: follow(make, link, "r"))
                tried(lambda: follow(make, link, "a"))
        """,
        harmless=True,
    ),
    Escape(
        "/proc of the trainer and of everybody",
        """
        tried(lambda: os.listdir("/proc"))
        for name in ("environ", "cmdline", "maps", "mem", "fd", "root", "cwd"):
            for pid in (TRAINER, VICTIM, os.getppid(), 1, "self"):
                tried(lambda: open(f"/proc/{pid}/{name}", "rb").read(1))
                tried(lambda: os.listdir(f"/proc/{pid}/{name}"))
        """,
    ),
    Escape(
        "filling the disk",
        """
        total = 0
        for folder in ("/tmp", ".", "/dev/shm", "/var/tmp", OUTSIDE, "/"):
            for number in range(1000):
                try:
                    with open(os.path.join(folder, f"fill{number}"), "xb", 0) as file:
                        for _ in range(7):
                            total += file.write(bytes(1 << 20))
                except OSError:
                    break
        print(total)
        """,
        at_most(LIMITS.folder_bytes),
    ),
    Escape(
        "one file larger than allowed",
        """
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        def large():
            with open("/tmp/large", "wb", 0) as file:
                for _ in range(9):
                    assert file.write(bytes(1 << 20)) == 1 << 20
        tried(large)
        """,
    ),
    Escape(
        "many open files",
        """
        files = []
        try:
            while True:
                files += os.pipe()
        except OSError:
            print(len(files))
        """,
        at_most(LIMITS.open_files),
    ),
)
