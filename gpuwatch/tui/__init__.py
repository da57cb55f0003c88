"""The terminal monitor; read `data_interfaces` first, `app` last."""
