"""Devices that sample and train: their limits, from data sheets, a file of yours, or a short probe."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from trimtab.errors import SettingError, nearest
from trimtab.planning.figures import Figure, Origin

GB, GIB = 1e9, float(1 << 30)
NOBODY = "nobody has measured it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU, or one computer whose processes share its cores.

    flops: dense bfloat16 operations a second (float32 on a CPU). memory: bytes.
    bandwidth: bytes a second read from its own memory. link: bytes a second to another device of the same
    node, one way. network: the same to another node. per_node: devices of a node.
    cores: processor cores that all processes share; 0 where every process has a device of its own.
    threads: cores that one process keeps busy, where cores are shared.
    slowdown: how many times as long a process takes while all other cores are busy, >= 1; ``slowdown_from``
        says who saw it.
    """

    name: str
    flops: float
    memory: float
    bandwidth: float
    link: float
    network: float
    per_node: int = 8
    cores: int = 0
    threads: int = 1
    slowdown: float = 1.0
    slowdown_from: str = NOBODY
    origin: Origin = Origin.ASSUMED
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("flops", "memory", "bandwidth", "link", "network"):
            if not getattr(self, name) > 0.0:
                raise SettingError(f"hardware {self.name!r}: {name} must be > 0, got {getattr(self, name)}")
        if self.per_node < 1 or self.cores < 0 or self.threads < 1 or not self.slowdown >= 1.0:
            raise SettingError(
                f"hardware {self.name!r}: per_node and threads must be >= 1, cores >= 0, slowdown >= 1"
            )

    def figures(self) -> list[Figure]:
        """Its limits with where they come from."""
        told = [
            Figure("compute", self.flops / 1e12, "TFLOP/s", self.origin, self.source),
            Figure("memory", self.memory / GIB, "GiB", self.origin, self.source),
            Figure("memory bandwidth", self.bandwidth / GB, "GB/s", self.origin, self.source),
        ]
        if self.cores:
            how = f"{self.cores} cores for all processes, {self.threads} busy in each; {self.slowdown_from}"
            seen = Origin.ASSUMED if self.slowdown_from == NOBODY else Origin.MEASURED
            told.append(Figure("slowdown on busy cores", self.slowdown, "times", seen, how))
            link = "between two processes of one computer"
            told.append(Figure("link within a node", self.link / GB, "GB/s", Origin.ASSUMED, link))
            return told
        told.append(Figure("link within a node", self.link / GB, "GB/s", self.origin, self.source))
        told.append(Figure("network between nodes", self.network / GB, "GB/s", self.origin, self.source))
        return told


def _sheet(
    name: str, teraflops: float, memory: float, bandwidth: float, links: float, network: float
) -> Device:
    """memory in GB, bandwidth in GB/s, links both ways in GB/s as NVIDIA counts them, network in Gbit/s."""
    return Device(
        name=name,
        flops=teraflops * 1e12,
        memory=memory * GB,
        bandwidth=bandwidth * GB,
        link=links * GB / 2,
        network=network * GB / 8,
        source="NVIDIA's data sheet (dense bfloat16, NVLink one way); one network port of the DGX a GPU",
    )


SHEETS = {
    "a100": _sheet("A100 SXM 80 GB", 312, 80, 2039, 600, 200),
    "h100": _sheet("H100 SXM", 989, 80, 3350, 900, 400),
    "h200": _sheet("H200 SXM", 989, 141, 4800, 900, 400),
    "b200": _sheet("B200 (HGX)", 2250, 180, 7700, 1800, 400),
}
"""What vendors print. Nobody reaches these numbers; ``Assumptions`` says which share is reckoned with."""


OURS = ("origin", "slowdown_from")
"""Fields that no file sets."""


def device_named(name: str) -> Device:
    """A data sheet by name, or a TOML file with the fields of ``Device``.

    Raises: SettingError for an unknown name or field.
    """
    if name.lower() in SHEETS:
        return SHEETS[name.lower()]
    file = Path(name)
    if not file.is_file():
        raise SettingError(
            f"no hardware is called {name!r} and there is no such file"
            f"{nearest(name.lower(), [*SHEETS, 'here'])}"
        )
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SettingError(f"{name} is not valid TOML: {problem}") from None
    known = {field.name: field.type for field in fields(Device) if field.name not in OURS}
    for key, value in table.items():
        if key not in known:
            raise SettingError(f"{name}: unknown field {key!r}{nearest(key, known)}")
        if isinstance(value, str) is not (known[key] == "str"):
            raise SettingError(f"{name}: {key} must be {'text' if known[key] == 'str' else 'a number'}")
    missing = [key for key in ("flops", "memory", "bandwidth", "link", "network") if key not in table]
    if missing:
        raise SettingError(f"{name} lacks {', '.join(missing)}: see docs/plan.md for the fields of a device")
    return Device(**{"name": file.stem, "source": name, **table})
