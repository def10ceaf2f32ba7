"""Where processes of training run: on this host, or on the nodes of a Ray cluster."""
