"""Release/gather through shared cells (Jain et al.)."""
