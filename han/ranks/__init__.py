"""What the ranks of a communicator tell each other outside of collectives."""
