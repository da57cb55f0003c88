"""Former modules of ``annotate``, each of which imports under its old name for one release; see ``annotate.__path__``."""
