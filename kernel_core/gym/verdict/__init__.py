"""One case before the judge, and the records of its passes."""
