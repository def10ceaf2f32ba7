"""How far an output may be from the expected one, and the comparison."""
