"""The web dashboard: pages made of the collector's last snapshot, and a stream that renews them.

A page is a function of what is known; the stream of the same address sends it anew whenever that
changed. Nobody who looks makes Slurm answer more often.
"""
