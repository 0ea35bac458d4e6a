"""The search for the best choice of a call: its space, and strategies to go through it."""
