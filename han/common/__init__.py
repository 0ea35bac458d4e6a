"""What all packages of han use: errors, units, suggestions, JSON files, files of the system."""
