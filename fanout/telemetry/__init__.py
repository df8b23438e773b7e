"""What operators see: logs and figures."""
