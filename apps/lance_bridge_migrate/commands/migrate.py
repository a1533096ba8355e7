"""All migration commands: those that plan a migration, and those for saved ones."""

from .planning import app
from .running import saved

app.registered_commands += saved.registered_commands
