"""Packages that only parts of Ensue need, its extras: what is missing, and how to install it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ensue.errors import EnsueError, RunnerError

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[(?P<extras>[^\]]+)\])?\s*(?P<bounds>[^;]*)")
_EXTRA = re.compile(r"""extra\s*==\s*["'](?P<extra>[\w-]+)["']""")
_BOUND = re.compile(r"[<>=!~\s]")
_SHOWN = 3  # packages; a longer list is not read


@contextmanager
def require_extra(what: str, extra: str, error: type[EnsueError] = RunnerError) -> Iterator[None]:
    """Around an import: what is not installed becomes an error that says how to get it.

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
    """How to install what an extra needs, for somebody who has Ensue already.

    It names the packages as well if they are few: a clone may be gone.
    """
    missing = [package for package in _packages(extra) if not _installed(package)]
    said = _again(extra)
    if 0 < len(missing) <= _SHOWN:
        said += f", or pip install {' '.join(map(_quoted, missing))}"
    return said


# What reads metadata takes a while to load, so it is imported where it is used.


def _again(extra: str) -> str:
    """Ensue is on no package index, so it is installed again from where it came (PEP 610)."""
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


def _packages(extra: str) -> list[str]:
    """What an extra asks for, with versions, also through other extras of Ensue."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        asked = requires("ensue") or []
    except PackageNotFoundError:  # run from its source
        return []
    found: list[str] = []
    for line in asked:
        requirement, marked = _REQUIREMENT.match(line), _EXTRA.search(line)
        if requirement is None or marked is None or marked["extra"] != extra:
            continue
        if requirement["name"] == "ensue":
            for other in (requirement["extras"] or "").split(","):
                found += _packages(other.strip())
        else:
            found.append(requirement["name"] + requirement["bounds"].strip())
    return list(dict.fromkeys(found))


def _installed(package: str) -> bool:
    from importlib.metadata import PackageNotFoundError, version

    try:
        version(_BOUND.split(package, maxsplit=1)[0])
    except PackageNotFoundError:
        return False
    return True


def _quoted(package: str) -> str:
    return f"'{package}'" if _BOUND.search(package) else package
