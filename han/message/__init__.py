"""A call's arguments become one record, the Message."""
