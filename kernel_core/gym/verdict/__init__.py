"""One case before the judge, and what its passes recorded."""
