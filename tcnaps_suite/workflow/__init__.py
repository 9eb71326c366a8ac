"""Running a study: what is stale, notebooks under papermill, what a study asks of its data."""
