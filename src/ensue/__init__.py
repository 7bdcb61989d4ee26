"""Ensue: complex event processing on tables, Spark DataFrames and streams."""

from typing import TYPE_CHECKING, Any

from ensue import api
from ensue.api import *  # noqa: F403

if TYPE_CHECKING:
    from ensue.service.service import Service

__version__ = "0.1.0"

__all__ = ["Service", "__version__", *api.__all__]  # noqa: PLE0604


def load_ipython_extension(ipython: Any) -> None:
    """Registers the cell magic `%%ensue` for `%load_ext ensue` in a notebook."""
    from ensue.notebook import load_ipython_extension

    load_ipython_extension(ipython)


def __getattr__(name: str) -> Any:
    """Loads the service on first use: it needs optional packages."""
    if name != "Service":
        raise AttributeError(f"module 'ensue' has no attribute {name!r}")
    from ensue.optional_deps import require_extra

    with require_extra("the service", "service"):
        from ensue.service.service import Service
    return Service
