"""The terminal monitor: one widget a file, `words` without textual, `app` last."""
