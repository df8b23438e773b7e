from places import eu, home, wish

__all__ = ["eu", "home", "wish"]
