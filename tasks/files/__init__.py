"""Plans and programs as files, and the checks of what is read."""
