"""Memory that the ranks of a node share: channels, arenas and windows."""
