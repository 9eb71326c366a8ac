"""What `make` calls: run a study, stop it, compare it with the reference, report, serve the widgets."""
