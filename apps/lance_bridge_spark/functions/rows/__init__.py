"""Changing rows of a table by a Spark job: new files, deletion files, and one commit."""
