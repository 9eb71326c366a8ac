"""What makes a suite of the library `tcnaps`: widgets, experiments, built-in images, labelling and the workflow."""
