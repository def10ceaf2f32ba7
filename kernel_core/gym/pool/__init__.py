"""A pool of judges on this machine or on a cluster: leases, health, and cached verdicts."""
