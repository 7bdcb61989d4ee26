"""Generated kernels on disk: compiled once, then loaded by every process that needs them."""

import hashlib
import importlib.util
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np

interpreted = False  # True: generated kernels run as plain Python, which tests find quicker
_loading = threading.Lock()
_NOTHING_COMPILED = """
def njit(*given, **_):
    return given[0] if given else lambda function: function
"""


@lru_cache(maxsize=1)
def folder() -> Path:
    """Where kernels are kept: `ENSUE_CACHE`, the user's cache folder, or a temporary one."""
    home = os.environ.get("ENSUE_CACHE")
    base = Path(home) if home else Path.home() / ".cache" / "ensue"
    for place in (base / "kernels", Path(tempfile.gettempdir()) / f"ensue-{os.getuid()}"):
        try:
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=place):
                return place
        except OSError:
            continue
    return Path(tempfile.mkdtemp(prefix="ensue-"))


def compiled(
    text: str, function: str, signature: object, *, python: bool = False
) -> Callable[..., Any]:
    """A function of a generated source, compiled for a signature (or lazily, for None).

    With `python` it is not compiled: it calls what Numba does not take.
    """
    if interpreted or python or numba.config.DISABLE_JIT:
        plain: Callable[..., Any] = getattr(_plain(text), function)
        return plain
    module = _module(text)
    with _loading:
        ready: dict[str, Callable[..., Any]] = module.__dict__.setdefault("_compiled", {})
        if function not in ready:
            options = {"cache": True, "nogil": True, "error_model": "numpy"}
            arguments = () if signature is None else (signature,)
            ready[function] = numba.njit(*arguments, **options)(getattr(module, function))
        return ready[function]


@lru_cache(maxsize=256)
def _plain(text: str) -> ModuleType:
    """The source as an ordinary module, with nothing kept on disk."""
    module = ModuleType("ensue_kernel")
    plain = text.replace("from numba import njit\n", _NOTHING_COMPILED)
    exec(compile(plain, module.__name__, "exec"), module.__dict__)
    return module


def kept(path: Path, text: str) -> None:
    """Writes a file that others may be reading or writing."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(temporary).replace(path)


def _module(text: str) -> ModuleType:
    # Numba's own index does not tell checked code from unchecked.
    versions = f"{numba.__version__} {np.__version__} {sys.version_info[:2]}"
    marks = f"{versions} {numba.config.BOUNDSCHECK}"
    digest = hashlib.sha256(f"{marks}\n{text}".encode()).hexdigest()[:32]
    name = f"ensue_kernel_{digest}"
    with _loading:
        if name in sys.modules:
            return sys.modules[name]
        path = folder() / f"{name}.py"
        if not path.exists():
            kept(path, text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # before it runs: code loaded from the cache looks its module up by name
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module
