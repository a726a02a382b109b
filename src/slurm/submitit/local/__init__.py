"""Jobs on this machine: on the embedded scheduler, or in this process."""
