"""The Python part and the compiled part have the same constants."""

from itertools import product

import pytest

from han import _native
from han.memory.channel import FIELDS, RECORD
from han.model.channel_layout import FLAG, INLINE, LINE, MAX_CHANNELS
from han.model.program import PEER, PEER_BUFFERS, PEER_CHANNELS, PEER_SLOTS, PeerBase
from han.model.topology import MAX_LEVELS
from han.runtime.numbers import check_numbers, differences, own_numbers


def test_the_parts_share_their_numbers():
    assert list(differences(_native.NUMBERS, own_numbers())) == []


@pytest.mark.parametrize("table", sorted(_native.NUMBERS))
def test_another_number_is_found(table):
    own = own_numbers()
    for name, number in own[table].items():
        other = {**own, table: {**own[table], name: number + 1}}
        with pytest.raises(ImportError, match=f"{table}.*says {name} = .*: reinstall han"):
            check_numbers(_native.NUMBERS, other)


def test_a_name_that_only_one_part_has_is_found():
    own = {"layout": {"CONTROL": 128}}
    compiled = {"layout": {"CONTROL": 128, "BELLS": 3}}
    (said,) = differences(compiled, own)
    assert said == "of layout, the compiled part says BELLS = 3, han says nothing"
    assert len(list(differences({}, own))) == 1


def test_the_fields_of_a_control_record_lie_where_the_compiled_part_reads_them():
    control, layout = _native.NUMBERS["control"], _native.NUMBERS["layout"]
    values = dict(zip(FIELDS, range(10, 18), strict=True))
    memory = RECORD.pack(*values.values())
    for name, value in values.items():
        assert memory[control[name]] == value
    assert RECORD.size == control["erred"]
    assert INLINE + FLAG == LINE == layout["LINE"]


def test_every_level_may_have_a_channel_that_a_base_can_name():
    assert MAX_LEVELS <= MAX_CHANNELS <= PEER_CHANNELS


def test_the_fields_of_a_peers_base_do_not_overlap():
    for fields in product((0, PEER_BUFFERS - 1), (0, PEER_CHANNELS - 1), (0, PEER_SLOTS - 1)):
        base = PeerBase(*fields).number
        assert PEER <= base < 2 * PEER
        assert PeerBase.of(base) == fields
