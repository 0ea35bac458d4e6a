"""When tasks ran."""
