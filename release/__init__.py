"""Checks of what is published: wheel, source archive, and the licences of what pip installs."""
