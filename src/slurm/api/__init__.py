"""Everything that talks to a scheduler: one Backend interface, whoever answers behind it."""
