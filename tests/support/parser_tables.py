"""Writes the parser tables of the grammars into the package: `make grammars`."""

import os
import tempfile
import zlib
from pathlib import Path

import lark

from ensue import cache_files
from ensue.parser import fragment_parser, pattern_parser
from ensue.parser.opsl import opsl_parser

PARSER = Path(pattern_parser.__file__).parent
GRAMMARS = {
    PARSER / "patterns.start.tables": pattern_parser._grammar,
    PARSER / "patterns.condition.tables": fragment_parser._grammar,
    PARSER / "opsl" / "opsl.start.tables": opsl_parser._grammar,
}


def main() -> None:
    for path, load in GRAMMARS.items():
        path.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["ENSUE_CACHE"] = folder
            cache_files.get_cache_folder.cache_clear()
            load()
            (built,) = Path(folder, "compiled").glob("grammar-*")
            content = cache_files.read_cached(built.name)
        assert content is not None
        digest = built.name.split("-")[1]
        path.write_bytes(f"{digest} {lark.__version__}\n".encode() + zlib.compress(content, 9))


if __name__ == "__main__":
    main()
