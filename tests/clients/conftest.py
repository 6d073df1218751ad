"""What pytest does not import here: scripts for environments that have a framework, and not Moonshim."""

collect_ignore = ["frameworks"]
