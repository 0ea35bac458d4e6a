"""The arguments of a call become one record, the Message."""
