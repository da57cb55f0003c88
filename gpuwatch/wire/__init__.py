"""The protocol of client and daemon: messages, timings, run ids, and the socket's path."""
