"""Comparing calls: the ranks tell each other what they call, before any of them makes the call."""

from __future__ import annotations

from han.memory.windows import Spots, Windows, agreed_spots
from han.message.message import Message
from han.message.parsers import Parser
from han.ranks.checks import compare
from han.ranks.health import Health


class Comparing:
    """Compares calls across the ranks of a communicator."""

    def __init__(self, health: Health, windows: Windows) -> None:
        self._health, self._windows = health, windows

    def compare(
        self, parser: Parser, arguments: tuple[object, ...]
    ) -> tuple[Message, tuple[Spots, ...]]:
        """Compare a call; return its message and the locations of all ranks' buffers; collective.

        Raises on all ranks if they do not agree.
        """
        message, problem, health = None, None, self._health
        with health.together(f"the comparison of {parser.name}"):
            try:
                message = parser.parse(health.meeting.comm, *arguments)
            except Exception as error:
                problem = error
            call = message.signature if message else f"{type(problem).__name__}: {problem}"
            spots = None
            if message is not None:
                spots = self._windows.spots(message.send, message.recv, message.signature)
            everyone = health.meeting.allgather((call, spots), health.step)
        compare([call for call, _ in everyone], problem)
        assert message is not None
        return message, agreed_spots([spots for _, spots in everyone])
