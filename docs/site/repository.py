"""Makes a site of pages that are written to be read on a code host.

A page says `../examples/theft.py`, which leads to that file on a code host and in an editor. In
the site there is only `docs/`, so each such file becomes a page of its own: another page of
Markdown as it is, a picture as it is, a notebook cell by cell, anything else as a block of code.

In a table a code host wants `a \\| b` for a bar in code; the site would show the backslash.
"""

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
FOLDER = "repository"  # of the site, for what is not under docs/
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`[^`\n]+`")
_PICTURES = (".svg", ".png")
_PROSE = (".md", ".ipynb")  # with links that lead somewhere
_LANGUAGES = {".py": "python", ".ensue": "ensue", ".json": "json"}


def on_files(files: Files, config: Any) -> Files:
    """Adds the files that pages link to, and those that these link to."""
    waiting = [place for file in files.documentation_pages() for place in _leads_to(file.src_uri)]
    while waiting:
        place = waiting.pop()
        uri = _uri(place)
        if files.get_file_from_path(uri) is None:
            files.append(_file(place, uri, config))
            waiting += _leads_to(uri)
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page with its links as the site has them."""
    here = _place(page.file.src_uri)
    if not here.endswith(_PROSE):
        return markdown
    markdown = _outside_code(lambda text: _LINK.sub(lambda m: _relinked(m, here), text), markdown)
    return "\n".join(map(_bars_in_code, markdown.split("\n")))


def _relinked(link: re.Match[str], here: str) -> str:
    place = _target(here, link[1])
    if place is None:
        return link[0]  # the site's own check then names it
    start = posixpath.dirname(_uri(here)) or "."
    return f"]({posixpath.relpath(_uri(place), start)}{link[2] or ''})"


def _leads_to(uri: str) -> list[str]:
    """The files of the repository that a page links to."""
    here = _place(uri)
    if not here.endswith(_PROSE) or not (ROOT / here).is_file():
        return []
    text = _CODE.sub("", (ROOT / here).read_text(encoding="utf-8"))
    targets = (_target(here, link[1]) for link in _LINK.finditer(text))
    return [place for place in targets if place is not None]


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


def _place(uri: str) -> str:
    """Which file of the repository a page of the site shows.

    >>> _place("sql.md"), _place("repository/README.md"), _place("repository/examples/theft.py.md")
    ('docs/sql.md', 'README.md', 'examples/theft.py')
    """
    if not uri.startswith(f"{FOLDER}/"):
        return f"docs/{uri}"
    place = uri.removeprefix(f"{FOLDER}/")
    return place if (ROOT / place).is_file() else place.removesuffix(".md")


def _file(place: str, uri: str, config: Any) -> File:
    path = ROOT / place
    if path.suffix in (".md", *_PICTURES):
        return File.generated(config, uri, abs_src_path=str(path))
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return File.generated(config, uri, content=_cells(text))
    language = _LANGUAGES.get(path.suffix, "text")
    return File.generated(config, uri, content=f"# {place}\n\n````{language}\n{text}\n````\n")


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


def _outside_code(change: Any, markdown: str) -> str:
    """The text with its prose changed and its code left alone."""
    parts, at = [], 0
    for code in _CODE.finditer(markdown):
        parts += [change(markdown[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*parts, change(markdown[at:])])
