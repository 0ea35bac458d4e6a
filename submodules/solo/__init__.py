"""Single copy: ranks read or write the memory of their peers."""
