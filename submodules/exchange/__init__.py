"""Mixed-radix exchanges (Jocksch et al.)."""
