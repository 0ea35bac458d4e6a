"""The Python part and the compiled part have the same numbers."""

import pytest

from han import _native
from han.model.native_check import check_numbers, differences
from han.runtime.numbers import own_numbers


def test_the_parts_share_their_numbers():
    assert list(differences(_native.NUMBERS, own_numbers())) == []


@pytest.mark.parametrize("table", sorted(_native.NUMBERS))
def test_another_number_is_found(table):
    own = own_numbers()
    name = next(iter(own[table]))
    other = {**own, table: {**own[table], name: own[table][name] + 1}}
    with pytest.raises(ImportError, match=f"{table}.*says {name} = .*: reinstall han"):
        check_numbers(_native.NUMBERS, other)


def test_a_name_that_only_one_part_has_is_found():
    own = {"layout": {"CONTROL": 128}}
    compiled = {"layout": {"CONTROL": 128, "BELLS": 3}}
    (said,) = differences(compiled, own)
    assert said == "of layout, the compiled part says BELLS = 3, han says nothing"
    assert len(list(differences({}, own))) == 1
