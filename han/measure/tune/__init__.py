"""``han tune``: measures tasks and collectives, and searches for the best choices."""
