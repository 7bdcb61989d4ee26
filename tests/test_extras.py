"""Where a package is missing, the error says how to install it, without a package index."""

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from ensue.optional_deps import format_install_hint, require_extra

REQUIRED = [
    "pyarrow>=18.0",
    "duckdb>=1.3; extra == 'sql'",
    "sqlglot-of-nobody>=30; extra == 'sql'",
    "shapely-of-nobody>=2.0; extra == 'space'",
    "ensue[space]; extra == 'service'",
    "uvloop-of-nobody; (sys_platform != 'win32') and extra == 'service'",
    *(f"p{k}-of-nobody>=1; extra == 'many'" for k in range(4)),
]


class Installed:
    """A distribution, as pip notes where it came from."""

    def __init__(self, origin: str | None) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        return self.origin if name == "direct_url.json" else None


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch):
    def come_from(origin: object) -> None:
        ours = Installed(None if origin is None else json.dumps(origin))
        monkeypatch.setattr(metadata, "distribution", lambda name: ours if name == "ensue" else real(name))

    real = metadata.distribution
    monkeypatch.setattr(metadata, "requires", lambda name: REQUIRED)
    come_from(None)
    return come_from


def test_it_names_the_extra_and_the_packages_that_are_missing(installed):
    said = "pip install '.[sql]' in a clone of Ensue, or pip install 'sqlglot-of-nobody>=30'"
    assert format_install_hint("sql") == said


def test_an_extra_may_ask_for_another_one(installed):
    assert format_install_hint("service").endswith("or pip install 'shapely-of-nobody>=2.0' uvloop-of-nobody")


def test_a_long_list_of_packages_is_left_out(installed):
    assert format_install_hint("many") == "pip install '.[many]' in a clone of Ensue"


def test_a_clone_that_is_still_there_is_named(installed, tmp_path: Path):
    installed({"url": tmp_path.as_uri(), "dir_info": {}})
    assert format_install_hint("many") == f"pip install '{tmp_path}[many]'"
    installed({"url": tmp_path.as_uri(), "dir_info": {"editable": True}})
    assert format_install_hint("many") == f"pip install -e '{tmp_path}[many]'"
    installed({"url": (tmp_path / "gone").as_uri(), "dir_info": {}})
    assert format_install_hint("many") == "pip install '.[many]' in a clone of Ensue"


def test_what_is_wrong_in_ensue_itself_is_not_called_missing():
    with pytest.raises(ImportError, match=r"ensue\.nothing"), require_extra("it", "sql"):
        import ensue.nothing  # noqa: F401


WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None
import ensue
from ensue.backends.spark.session import get_or_create_session
calls = (
    get_or_create_session,
    lambda: ensue.start(None, "out", checkpoint="c"),
    lambda: ensue.parquet_table("out"),
    lambda: ensue.remaining(None, "c"),
)
for call in calls:
    try:
        call()
    except ensue.RunnerError as error:
        print(str(error).partition("\\n")[0])
"""


def test_streams_say_that_they_need_spark():
    ended = subprocess.run([sys.executable, "-c", WITHOUT_SPARK], capture_output=True, text=True, check=True)
    said = ended.stdout.splitlines()
    assert len(said) == 4
    assert all(line.endswith("needs the package pyspark, which is not installed") for line in said)
