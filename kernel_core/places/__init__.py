"""Locations of training processes: on this host, or on the nodes of a Ray cluster."""
