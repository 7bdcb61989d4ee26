"""The machine that the figures are from."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def machine() -> dict[str, object]:
    """Its processor, memory and versions; nothing that names it."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": _memory(),
        "load_before": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "java": _java(),
        **{name: _version(name) for name in ("numba", "numpy", "pyarrow", "pyspark")},
    }


def sentence(machine: dict[str, object]) -> str:
    """The machine in one line."""
    memory = machine["memory_bytes"]
    size = f", {memory / 2**30:.0f} GB" if isinstance(memory, int) else ""
    return (
        f"{machine['cores']} cores of {machine['cpu']}{size}, Python {machine['python']}, {str(machine['date'])[:10]}"
    )


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    if described.exists():
        for line in described.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _java() -> str | None:
    try:
        said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return next(iter(said.stderr.splitlines()), None)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
