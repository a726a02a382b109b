"""Jobs, executors, their files and their environment, under the names that submitit gave them."""
