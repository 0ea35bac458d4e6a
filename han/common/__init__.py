"""What every room uses: errors' texts, units, suggestions, JSON files."""
