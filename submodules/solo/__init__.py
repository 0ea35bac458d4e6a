"""Single copy: ranks read or write each other's memory."""
