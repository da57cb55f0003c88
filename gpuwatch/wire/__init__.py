"""The conversation of client and daemon: messages, timings, run ids, and where the socket is."""
