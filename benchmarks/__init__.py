"""The numbers of this project, each measured beside its peer; `make bench` runs them all."""
