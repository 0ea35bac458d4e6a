"""One communicator at work."""
