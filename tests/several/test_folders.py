"""Names of queries and levels as those of folders: inside the output, and no two the same."""

import pytest

from ensue.backends.spark.stream_folders import name_folders
from ensue.errors import EventError


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("..", "outside the output folder"),
        (".", "outside the output folder"),
        ("a/b", "has a /"),
        ("/etc", "has a /"),
        ("a\\b", r"has a \\"),
        ("a\0b", "has the character"),
        ("a\nb", "has the character"),
        ("a\ud800", "has the character"),
        (" a", "blank"),
        ("  ", "blank"),
        ("ü" * 101, "more than 200 bytes"),
    ],
)
def test_a_name_that_is_none_of_a_folder_is_refused(name, said):
    with pytest.raises(EventError, match=said) as caught:
        name_folders([name, "b"], top="matches")
    assert "hint:" in str(caught.value)


@pytest.mark.parametrize("names", [("", "matches"), ("a", "A"), (1, "1"), ("straße", "STRASSE"), ("\u00e9", "e\u0301")])
def test_two_names_of_one_folder_are_refused(names):
    with pytest.raises(EventError, match="would share the folder"):
        name_folders(names, top="matches")


def test_other_names_stay_as_they_are():
    names = ["a b", "a[1]", "a{b}", "*", "?", "%20", "#", "a:b", "ü☃", ".a", "_a", 0, "a" * 200]
    assert list(name_folders(names, top="matches").values()) == list(map(str, names))
