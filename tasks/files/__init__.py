"""Plans and programs as files, and the checks when they are read."""
