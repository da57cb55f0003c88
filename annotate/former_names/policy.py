"""Former name of ``annotate.user_policy``, kept for one release; a rule's limits are in ``annotate/rules/``."""

from annotate.user_policy import Policy

__all__ = ["Policy"]
