from places import eu, home, many, wish

__all__ = ["eu", "home", "many", "wish"]
