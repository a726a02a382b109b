"""Containers: the function runs in an image, which is used as it is or built, pushed and pinned."""
