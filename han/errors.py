"""The errors of han, under their public name; see :mod:`han.common.errors`."""

from han.common.errors import *  # noqa: F403
