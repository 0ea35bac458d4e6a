"""Messages of blocks that travel together."""
