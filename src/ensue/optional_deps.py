"""Optional dependencies (extras): which are missing, and how to install them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ensue.errors import EnsueError, RunnerError

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[(?P<extras>[^\]]+)\])?\s*(?P<bounds>[^;]*)")
_EXTRA = re.compile(r"""extra\s*==\s*["'](?P<extra>[\w-]+)["']""")
_BOUND = re.compile(r"[<>=!~\s]")
_SHOWN = 3  # packages of a hint


@contextmanager
def require_extra(what: str, extra: str, error: type[EnsueError] = RunnerError) -> Iterator[None]:
    """Turns a failed import into an error that says how to install the package.

    >>> with require_extra("the moon", "sql"):
    ...     import moon
    Traceback (most recent call last):
    ensue.errors.RunnerError: the moon needs the package moon, which is not installed
      hint: pip install ...
    """
    try:
        yield
    except ImportError as missing:
        package = (missing.name or "").partition(".")[0]
        if package == "ensue":
            raise
        named = f"the package {package}, which is not installed" if package else f"more: {missing}"
        raise error(f"{what} needs {named}\n  hint: {format_install_hint(extra)}") from None


def format_install_hint(extra: str) -> str:
    """How to install the packages of an extra, where Ensue is installed already.

    A few missing packages are named too, since the clone of Ensue may be gone.
    """
    missing = [package for package in _list_packages(extra) if not _is_installed(package)]
    hint = _format_reinstall(extra)
    if 0 < len(missing) <= _SHOWN:
        quoted = [f"'{name}'" if _BOUND.search(name) else name for name in missing]
        hint += f", or pip install {' '.join(quoted)}"
    return hint


# importlib.metadata loads slowly, so it is imported where it is used.


def _format_reinstall(extra: str) -> str:
    """Ensue is on no package index, so it is installed again from its origin (PEP 610)."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = json.loads(distribution("ensue").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    place = urlsplit(origin.get("url", ""))
    path = Path(url2pathname(place.path))
    if place.scheme != "file" or not path.exists():
        return f"pip install '.[{extra}]' in a clone of Ensue"
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}'{path}[{extra}]'"


def _list_packages(extra: str) -> list[str]:
    """The requirements of an extra, with versions, including those of nested extras."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        requirements = requires("ensue") or []
    except PackageNotFoundError:  # run from its source
        return []
    packages: list[str] = []
    for line in requirements:
        requirement, marked = _REQUIREMENT.match(line), _EXTRA.search(line)
        if requirement is None or marked is None or marked["extra"] != extra:
            continue
        if requirement["name"] == "ensue":
            for other in (requirement["extras"] or "").split(","):
                packages += _list_packages(other.strip())
        else:
            packages.append(requirement["name"] + requirement["bounds"].strip())
    return list(dict.fromkeys(packages))


def _is_installed(package: str) -> bool:
    from importlib.metadata import PackageNotFoundError, version

    try:
        version(_BOUND.split(package, maxsplit=1)[0])
    except PackageNotFoundError:
        return False
    return True
