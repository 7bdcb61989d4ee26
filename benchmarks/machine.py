"""The machine and the commit that the figures are from."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHANGED = " with changes"  # behind a commit: what was measured differs from it
_MEASURED = ("src", "benchmarks", "examples", "pyproject.toml", ":!benchmarks/results")


def machine() -> dict[str, object]:
    """Its processor, memory and versions, nothing that names it; and the commit, for every file of results."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **({"commit": commit} if (commit := describe_commit()) else {}),
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
    """The machine in one line, and the commit if it is known.

    >>> known = {"cores": 2, "cpu": "X", "memory_bytes": 8 << 30, "python": "3.11", "date": "2026-01-01T10:00"}
    >>> sentence(known)
    '2 cores of X, 8 GB, Python 3.11, 2026-01-01'
    >>> sentence(known | {"commit": "0a1b2c3d with changes"})
    '2 cores of X, 8 GB, Python 3.11, 2026-01-01, commit 0a1b2c3d with changes'
    """
    memory = machine["memory_bytes"]
    size = f", {memory / 2**30:.0f} GB" if isinstance(memory, int) else ""
    commit = f", commit {machine['commit']}" if "commit" in machine else ""
    date = str(machine["date"])[:10]
    return f"{machine['cores']} cores of {machine['cpu']}{size}, Python {machine['python']}, {date}{commit}"


def describe_commit() -> str | None:
    """The short commit, and whether code that is measured differs from it; None where there is no history."""
    commit = ask_git("rev-parse", "--short=8", "HEAD")
    changed = commit and ask_git("status", "--porcelain", "--", *_MEASURED)
    return f"{commit}{CHANGED}" if changed else commit


def ask_git(*arguments: str) -> str | None:
    """What git says about this checkout; None if it fails, or is not there."""
    try:
        said = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return said.stdout.strip() if said.returncode == 0 else None


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
