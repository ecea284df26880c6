"""What a row is: its lines, its definition, its facts and columns."""
