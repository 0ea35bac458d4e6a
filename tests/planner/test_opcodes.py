"""The table of operations: every code has a row, and every reader of Programs knows every code."""

from han.model.opcodes import ATTACHED, COPIES, OPCODES, PEERS, READS, STARTS, WRITES, Code, Kind
from han.tasks.inspect import listing
from han.tasks.verify import story


def test_every_code_has_one_row_in_order():
    assert list(OPCODES) == list(Code)


def test_operands_are_those_of_a_record():
    for code, row in OPCODES.items():
        assert set(row.reads) | set(row.writes) <= set(range(4)), code
        assert row.attached is None or row.attached in row.reads + row.writes, code


def test_what_reaches_into_a_peer_or_starts_a_message_names_the_peer():
    assert set(ATTACHED) | set(STARTS) <= set(PEERS)


def test_data_operations_read_and_write():
    for code, row in OPCODES.items():
        if row.kind in (Kind.COPY, Kind.COMBINE):
            assert code in READS, code
            assert code in WRITES, code
    assert set(ATTACHED) < set(COPIES)


def test_readers_know_every_code():
    assert set(story.FORMS) == set(listing.FORMS) == set(Code)
