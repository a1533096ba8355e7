"""Changing rows of a table by a Spark job: new data files, deletion files, and one commit."""
