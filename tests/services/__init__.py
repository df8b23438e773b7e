"""Real services for tests, and how to wait for them."""

from services.databases import Databases, run
from services.roles import Role, Roles
from services.waiting import eventually

__all__ = ["Databases", "Role", "Roles", "eventually", "run"]
