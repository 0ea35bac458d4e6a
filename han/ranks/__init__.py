"""What ranks tell each other outside of collectives."""
