"""The errors of han, under their public name; see :mod:`han.common.errors`."""

from han.common.errors import *  # noqa: F403
from han.common.errors import __all__ as __all__
