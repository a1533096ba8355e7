"""Heavy jobs that Spark runs: planned on the driver, executed by tasks, committed once."""
