"""The environment variables of han, and warnings about unknown ones."""

import pytest

from han.config.environment import ENVIRONMENT, aborts, unknown_variables, warn_of_unknown
from han.config.rc import SETTINGS, VARIABLES

OTHERS = (
    "HAN_ABORT", "HAN_ARENA", "HAN_CALIBRATE", "HAN_PRELOAD_LIBPYTHON", "HAN_PRELOAD_PYTHON",
    "HAN_SHM_DIR",
)  # fmt: skip


def test_every_setting_has_a_variable_with_a_description():
    assert set(VARIABLES) == set(SETTINGS)
    assert set(ENVIRONMENT) == {*VARIABLES.values(), *OTHERS}
    assert all(about and "(HAN_" not in about for about in ENVIRONMENT.values())


@pytest.mark.parametrize("name", [*ENVIRONMENT, "HAN_TEST_MPI", "HOME", "HANDLE", "OMPI_HAN_X"])
def test_known_and_other_variables_pass(name):
    value = "first" if name == "HAN_CALIBRATE" else "1"
    assert unknown_variables({name: value}) == []


def test_an_unknown_variable_is_answered_with_the_known_ones():
    with pytest.warns(UserWarning, match="HAN_TIMOUT; did you mean 'HAN_TIMEOUT'. Known: HAN_AB"):
        warn_of_unknown({"HAN_TIMOUT": "3", "HAN_WAIT": "spin"})


def test_whether_an_uncaught_error_aborts():
    answers = {"1": True, "yes": True, "0": False, "": False, "maybe": False}
    assert {text: aborts({"HAN_ABORT": text}) for text in answers} == answers
    assert not aborts({})
    assert [
        text for value in ("1", "0", "") for text in unknown_variables({"HAN_ABORT": value})
    ] == []
    (said,) = unknown_variables({"HAN_ABORT": "maybe"})
    assert "HAN_ABORT: 'maybe' is not one of 1, true" in said
