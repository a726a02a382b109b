"""Pure values: job states, job ids, units, host lists and the options of a task; no I/O in here."""
