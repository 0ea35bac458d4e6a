"""Pictures of measurements, timelines and plans (matplotlib)."""
