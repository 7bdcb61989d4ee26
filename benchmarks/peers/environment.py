"""Flink's own virtual environment: its pins of pandas and Arrow are older than Ensue's."""

import shutil
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
NEWEST = (3, 12)  # the newest Python that apache-flink 2.3 is released for


def flink_python(cache: Path) -> Path:
    """The interpreter of the environment, which the first call makes (about 850 MB)."""
    home = cache / "flink"
    python = home / "bin" / "python"
    stamp = home / REQUIREMENTS.name
    if not stamp.exists() or stamp.read_text() != REQUIREMENTS.read_text():
        print(f"Installing Apache Flink into {home} (once, takes minutes) ...", flush=True)
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([_base_python(), "-m", "venv", str(home)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS)], check=True)
        shutil.copy(REQUIREMENTS, stamp)  # last: a broken installation starts anew
    return python


def _base_python() -> str:
    if sys.version_info[:2] <= NEWEST:
        return sys.executable
    for name in ("python3.12", "python3.11", "python3.10"):
        if found := shutil.which(name):
            return found
    raise SystemExit("Apache Flink 2.3 needs Python 3.12 or older; none is on PATH")
