"""The judge over HTTP: a service on the judge pool, its client, and OpenEnv's interface."""
