"""Event-driven trees of point-to-point messages."""
