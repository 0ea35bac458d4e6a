"""Built-in choices as data: a table of rows that comes with han, and how it is searched."""
