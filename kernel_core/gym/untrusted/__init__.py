"""Everything that runs inside the sandbox, beside untrusted code or its traces."""
