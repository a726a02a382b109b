"""Local jobs have no controller process of their own: the embedded scheduler starts them."""
