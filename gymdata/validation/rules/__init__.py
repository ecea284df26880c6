"""The rules, each a pure function of a row, a line or the columns of all rows."""
