"""All commands of migrations: those that plan one, and those for one that is kept."""

from .planning import app
from .saved import saved

app.registered_commands += saved.registered_commands
