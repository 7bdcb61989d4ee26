"""The state of a key group of subscriptions is saved and restored."""

import pytest

from ensue.engine.state_format import pack_state, unpack_state
from ensue.errors import StateError
from ensue.operators.subscriptions.subscription_loader import clear_set_cache
from support.saved_key_groups import REST, halfway, matcher, went_on


def test_a_key_group_goes_on_from_a_saved_state(tmp_path):
    clear_set_cache()
    key_group = halfway(tmp_path / "first")
    state, expected = key_group.snapshot(), went_on(key_group, REST)
    restored = matcher(tmp_path / "second")
    restored.restore(state)
    assert went_on(restored, REST) == expected
    names = {match.split()[0] for match in expected}
    assert {"left", "quiet", "nobody", "same", "later"} <= names
    assert "gone" not in names


def test_a_state_of_another_format_is_refused(tmp_path):
    clear_set_cache()
    key_group = matcher(tmp_path)
    header, arrays, blobs = unpack_state(key_group.snapshot())
    with pytest.raises(StateError, match=r"format 9(.|\n)*hint"):
        key_group.restore(pack_state(header | {"format": 9}, arrays, blobs))
