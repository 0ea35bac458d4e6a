"""Properties that are computed once."""

from dataclasses import dataclass

from han.common.kept import kept


@dataclass(frozen=True)
class Square:
    side: int

    @kept
    def area(self) -> int:
        """The area."""
        computed.append(self.side)
        return self.side**2


computed: list[int] = []


def test_a_property_is_computed_once_for_each_object():
    one, other = Square(3), Square(4)
    assert (one.area, other.area, one.area, other.area) == (9, 16, 9, 16)
    assert computed == [3, 4]
    assert one == Square(3), "what is kept is no field"
    assert Square.area.__doc__ == "The area."
