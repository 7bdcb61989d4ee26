"""Notebook representations of texts, queries and pictures: escaped HTML and SVG."""

import re
from collections.abc import Callable
from html import escape
from typing import Any

_WORDS = (
    "PATTERN EVENT EMIT IMPORT AS SEQ AND OR NOT ANY EACH REPEAT WHERE WITHIN OF USING NEXT AFTER "
    "MATCH SKIP TO PAST LAST FIRST RETURN HAVING LIMIT CHOOSE COUNT EXISTS IN LIKE IS NULL "
    "BETWEEN CASE WHEN THEN ELSE END FROM UNTIL JOIN LEFT ARCHIVE RANGE BEFORE START ON SELECT BY "
    "ORDER PARTITION MATCH_RECOGNIZE MEASURES DEFINE ONE ROW ROWS PER ALL PERMUTE DISTINCT"
)
_TOKEN = re.compile(
    r"(?P<note>--[^\n]*)|(?P<text>'(?:[^']|'')*')|(?P<name>\"[^\"]*\")"
    r"|(?P<word>\b(?:" + "|".join(_WORDS.split()) + r")\b)|(?P<number>\b\d+(?:\.\d+)?\b)"
)
_STYLES = {"note": "#7a8794", "text": "#2e7d4f", "word": "#2f5fa8", "number": "#a05a00"}
_PRE = '<pre style="line-height:1.35;overflow-x:auto">'

MimeBundle = dict[str, str]
_TEXTS: dict[type, Callable[[Any], str]] = {}


def highlight_query(text: str) -> str:
    """Highlights the keywords, numbers and strings of a query as HTML.

    >>> highlight_query("A a WHERE a.x < 3")
    'A a <b style="color:#2f5fa8">WHERE</b> a.x &lt; <span style="color:#a05a00">3</span>'
    """
    parts, end = [], 0
    for token in _TOKEN.finditer(text):
        parts.append(escape(text[end : token.start()]))
        tag = "b" if token.lastgroup == "word" else "span"
        style = _STYLES.get(str(token.lastgroup))
        inside = escape(token.group(), quote=False)
        parts.append(inside if style is None else f'<{tag} style="color:{style}">{inside}</{tag}>')
        end = token.end()
    return "".join([*parts, escape(text[end:])])


def wrap_in_frame(html: str) -> str:
    return f"{_PRE}{html}</pre>"


class PlanText(str):
    """The text of a plan, which a notebook shows in lines."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        lines = []
        for line in self.splitlines():
            head = re.match(r"[a-z][a-z ]*?(?=  )|[a-z][^:]*:(?= |$)", line)
            name = head.group() if head else ""
            lines.append(f"<b>{escape(name)}</b>{highlight_query(line[len(name) :])}")
        return wrap_in_frame("\n".join(lines))

    def _repr_mimebundle_(self, **_: Any) -> MimeBundle:
        return {"text/html": self._repr_html_(), "text/plain": str(self)}

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(str(self))  # IPython would show a str in one line


class Picture(str):
    """The text of an SVG, which a notebook shows as a picture."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)

    _repr_html_ = _repr_svg_

    def _repr_mimebundle_(self, **_: Any) -> MimeBundle:
        return {"image/svg+xml": str(self), "text/html": str(self), "text/plain": self._summarize()}

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(self._summarize())

    def _summarize(self) -> str:
        return f"<a picture: {len(self):,} characters of SVG>"


class TextRepr:
    """Base class of objects that a notebook shows as their text."""

    __slots__ = ()

    def _repr_mimebundle_(self, **_: Any) -> MimeBundle:
        get_text = next((_TEXTS[kind] for kind in type(self).__mro__ if kind in _TEXTS), repr)
        text = get_text(self)
        return {"text/html": wrap_in_frame(highlight_query(text)), "text/plain": text}


def register_text(text: Callable[[Any], str], *kinds: type) -> None:
    """Registers the function that returns the text of objects of these classes."""
    _TEXTS.update(dict.fromkeys(kinds, text))
