"""The protocol of client and daemon: messages, timings, spans, run ids, bounds of marks, and the socket's path."""
