"""Codes of the texts that atoms ask for."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_SHARDS = 256  # a dictionary that grows moves all it holds: these stay small

_FILES = ("text_offsets.npy", "text_bytes.npy", "text_uses.npy")

UNKNOWN = -1  # the code of a text that no atom asks for


class Texts:
    """A code for each text, as long as somebody uses it.

    >>> texts = Texts()
    >>> texts.take("truck"), texts.take("van"), texts.take("truck"), texts.code("bus")
    (0, 1, 0, -1)
    >>> texts.give_back(1), texts.take("bus"), texts.code("van")
    (True, 1, -1)
    """

    def __init__(self) -> None:
        self._shards: list[dict[str, int]] = [{} for _ in range(_SHARDS)]
        self._texts: list[str | None] = []
        self._uses: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._texts) - len(self._free)

    def code(self, text: str) -> int:
        return self._shards[hash(text) % _SHARDS].get(text, UNKNOWN)

    def codes(self, texts: Iterable[str]) -> npt.NDArray[np.int64]:
        shards = self._shards
        return np.array([shards[hash(t) % _SHARDS].get(t, UNKNOWN) for t in texts], np.int64)

    def take(self, text: str) -> int:
        """The code of a text, which is used once more."""
        shard = self._shards[hash(text) % _SHARDS]
        code = shard.get(text)
        if code is not None:
            self._uses[code] += 1
            return code
        if self._free:
            code = self._free.pop()
            self._texts[code], self._uses[code] = text, 1
        else:
            code = len(self._texts)
            self._texts.append(text)
            self._uses.append(1)
        shard[text] = code
        return code

    def give_back(self, code: int) -> bool:
        """One use less; whether the text is forgotten, and its code free."""
        self._uses[code] -= 1
        if self._uses[code]:
            return False
        text = self._texts[code]
        assert text is not None
        del self._shards[hash(text) % _SHARDS][text]
        self._texts[code] = None
        self._free.append(code)
        return True

    def items(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Offsets, bytes and numbers of uses by code, to `restore` from."""
        encoded = [(text or "").encode("utf-8", "surrogatepass") for text in self._texts]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(e) for e in encoded], out=offsets[1:])
        uses = np.array(self._uses, np.int64)
        return offsets, np.frombuffer(b"".join(encoded), np.uint8), uses

    def save(self, folder: Path) -> None:
        parts: tuple[npt.NDArray[Any], ...] = self.items()
        for name, part in zip(_FILES, parts, strict=True):
            np.save(folder / name, part, allow_pickle=False)

    @classmethod
    def open(cls, folder: Path) -> "Texts":
        offsets, data, uses = (np.load(folder / name, allow_pickle=False) for name in _FILES)
        return cls.restore(offsets.tolist(), data.tobytes(), uses.tolist())

    @classmethod
    def restore(cls, offsets: Sequence[int], data: bytes, uses: Sequence[int]) -> "Texts":
        texts = cls()
        texts._uses = list(uses)
        for code, used in enumerate(uses):
            if not used:
                texts._texts.append(None)
                texts._free.append(code)
                continue
            text = data[offsets[code] : offsets[code + 1]].decode("utf-8", "surrogatepass")
            texts._texts.append(text)
            texts._shards[hash(text) % _SHARDS][text] = code
        return texts

    @property
    def nbytes(self) -> int:
        """About how much the texts take: each a string, a place in a table and two in lists."""
        return sum(len(t or "") for t in self._texts[:1024]) * len(self._texts) // max(
            1, min(1024, len(self._texts))
        ) + 150 * len(self._texts)
