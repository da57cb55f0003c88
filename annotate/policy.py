"""Former place of `annotate.user_policy`, kept for one release."""

from annotate.user_policy import Policy

__all__ = ["Policy"]
