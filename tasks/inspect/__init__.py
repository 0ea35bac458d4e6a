"""Views of plans for people: listing, traffic, comparison, pictures."""
