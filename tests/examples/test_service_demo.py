"""`make demo-service`: its options."""

import pytest

from demos.service import main


@pytest.mark.parametrize(("arguments", "says"), [(["--speed", "0"], "--speed must be"), (["{old}"], "already exists")])
def test_a_mistake_is_said(tmp_path, capsys, arguments, says):
    old = tmp_path / "old.db"
    old.touch()
    assert main([one.format(old=old) for one in arguments]) == 2
    assert says in capsys.readouterr().err
