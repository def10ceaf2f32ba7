"""Generated problems in the form that people write: layers, parameters, docstrings, usual sizes."""
