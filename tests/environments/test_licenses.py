"""Licence names in the three vocabularies."""

import pytest

from gymdata.environments import licenses


@pytest.mark.parametrize("name", licenses.GYM_TO_SPDX)
def test_every_string_of_nemo_gym_is_kept(name):
    assert licenses.canonical(name) == name


@pytest.mark.parametrize("name", licenses.GYM_TO_SPDX)
def test_an_spdx_identifier_becomes_a_string_of_nemo_gym_with_the_same_identifier(name):
    spdx = licenses.spdx(name)
    assert licenses.spdx(licenses.canonical(spdx)) == spdx
    assert licenses.known_to_gym(licenses.canonical(spdx.lower()))


def test_an_identifier_that_nemo_gym_has_no_string_for_is_kept():
    assert licenses.canonical("cc0-1.0") == "CC0-1.0"
    assert not licenses.known_to_gym("CC0-1.0")


def test_the_hub_has_its_own_names():
    assert [
        licenses.hub(name)
        for name in ("Apache 2.0", "TBD", "NVIDIA Evaluation Dataset License Agreement", "GNU General Public License v3.0")
    ] == [
        "apache-2.0",
        "unknown",
        "other",
        "gpl-3.0",
    ]


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(ValueError, match="Apache"):
        licenses.canonical("Apache 2")
