"""Release and gather through cells in shared memory (Jain et al.)."""
