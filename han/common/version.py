"""The version of han."""

__version__ = "0.1.0"
