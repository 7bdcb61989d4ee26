"""Writes the pages of the site: `python docs/site/pages.py build/docs [--watch]`.

The pages of `docs/` are written to be read on a code host: `../examples/theft.py` leads to that
file there and in an editor. The site has no such files, so each becomes a page: Markdown and
pictures as they are, a notebook cell by cell, anything else as a block of code.

In a table a code host wants `a \\| b` for a bar in code; the site would show the backslash.
"""

import json
import posixpath
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = "repository"  # of the site, for what is not under docs/
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`[^`\n]+`")
_PICTURES = (".svg", ".png")
_PROSE = (".md", ".ipynb")  # with links that lead somewhere
_LANGUAGES = {".py": "python", ".ensue": "ensue", ".json": "json"}


def write_pages(target: Path) -> list[str]:
    """Writes changed pages of docs/, the files they link to, and so on; returns broken links."""
    docs = (path for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", *_PICTURES))
    waiting = [path.relative_to(ROOT).as_posix() for path in docs]
    written, broken = set(), []
    while waiting:
        place = waiting.pop()
        if place in written:
            continue
        written.add(place)
        page, content = target / _uri(place), _content(place)
        if not page.is_file() or page.read_bytes() != content:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_bytes(content)
        for link, linked in _links(place):
            if linked is None:
                broken.append(f"{place}: there is no {link}")
            else:
                waiting.append(linked)
    return broken


def _content(place: str) -> bytes:
    """A file of the repository as a page of the site."""
    path = ROOT / place
    if path.suffix in _PICTURES:
        return path.read_bytes()
    text = path.read_text(encoding="utf-8")
    if path.suffix not in _PROSE:
        language = _LANGUAGES.get(path.suffix, "text")
        return f"# {place}\n\n````{language}\n{text}\n````\n".encode()
    text = _cells(text) if path.suffix == ".ipynb" else text
    text = _outside_code(lambda prose: _LINK.sub(lambda m: _relinked(m, place), prose), text)
    return "\n".join(map(_bars_in_code, text.split("\n"))).encode()


def _relinked(link: re.Match[str], here: str) -> str:
    place = _target(here, link[1])
    if place is None:
        return link[0]
    start = posixpath.dirname(_uri(here)) or "."
    return f"]({posixpath.relpath(_uri(place), start)}{link[2] or ''})"


def _links(here: str) -> list[tuple[str, str | None]]:
    """The links of a page to the repository, with the file each leads to."""
    if not here.endswith(_PROSE):
        return []
    text = _CODE.sub("", (ROOT / here).read_text(encoding="utf-8"))
    return [(link[1], _target(here, link[1])) for link in _LINK.finditer(text)]


def _target(here: str, link: str) -> str | None:
    """The file that a link on the page `here` leads to; of a folder its README."""
    place = posixpath.normpath(posixpath.join(posixpath.dirname(here), link))
    if (ROOT / place).is_dir():
        place = f"{place}/README.md"
    return place if (ROOT / place).is_file() else None


def _uri(place: str) -> str:
    """Where a file of the repository is in the site.

    >>> _uri("docs/sql.md"), _uri("README.md"), _uri("examples/theft.py")
    ('sql.md', 'repository/README.md', 'repository/examples/theft.py.md')
    """
    if place.startswith("docs/"):
        return place.removeprefix("docs/")
    return f"{FOLDER}/{place}" + ("" if place.endswith((".md", *_PICTURES)) else ".md")


def _cells(notebook: str) -> str:
    """A notebook as Markdown: its prose, and its code in blocks.

    >>> print(_cells('{"cells": [{"cell_type": "code", "source": ["1 + 1"]}]}'))
    ```python
    1 + 1
    ```
    """
    parts = []
    for cell in json.loads(notebook)["cells"]:
        source = "".join(cell["source"])
        language = "ipython" if source.startswith("%") else "python"
        code = cell["cell_type"] == "code"
        parts.append(f"```{language}\n{source}\n```" if code else source)
    return "\n\n".join(parts)


def _bars_in_code(line: str) -> str:
    """A line of a table with plain bars in its code.

    >>> print(_bars_in_code(r"| `a \\| b` | one \\| of |"))
    | `a | b` | one \\| of |
    """
    if not line.startswith("|"):
        return line
    return _SPAN.sub(lambda code: code[0].replace(r"\|", "|"), line)


def _outside_code(change: Callable[[str], str], markdown: str) -> str:
    """The text with its prose changed and its code left alone."""
    parts, at = [], 0
    for code in _CODE.finditer(markdown):
        parts += [change(markdown[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*parts, change(markdown[at:])])


if __name__ == "__main__":
    broken = write_pages(Path(sys.argv[1]))
    while sys.argv[2:] == ["--watch"]:
        time.sleep(1)
        broken = write_pages(Path(sys.argv[1]))
    sys.exit("\n".join(broken) or 0)
