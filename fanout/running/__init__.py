"""Puts the parts of a role together and runs them as a process: settings in, exit status out."""
