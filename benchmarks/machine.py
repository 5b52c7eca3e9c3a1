"""Describes the machine of a run."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil


def describe() -> dict[str, str]:
    """Processor, memory, system and load as texts, without names of the machine or its user."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": _processor(),
        "cores": str(cores),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "virtual": "yes" if _is_virtual() else "not known",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load before": " ".join(f"{load:.2f}" for load in psutil.getloadavg()),
    }


def _processor() -> str:
    for line in _cpuinfo():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _is_virtual() -> bool:
    return any(line.startswith("flags") and " hypervisor" in line for line in _cpuinfo())


def _cpuinfo() -> list[str]:
    file = Path("/proc/cpuinfo")
    return file.read_text().splitlines() if file.exists() else []
