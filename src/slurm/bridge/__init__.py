"""The bridge: Kubernetes pods placed by Slurm.

A pod of an opted-in namespace is admitted with a scheduling gate and gets a Slurm placeholder job;
when Slurm starts that job on a node, the pod runs there; either side ending ends the other.

What is decided is pure and lies in `parameters`, `identity`, `translation`, `gang`, `nodes`,
`feasibility` and `admission`; what is done lies in `kube`, `slurm_jobs`, `webhook`, `scheduler`,
`node_sync`, `lease` and `service`.
"""
