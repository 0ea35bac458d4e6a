"""The version of han."""

__version__ = "0.2.0"
