"""Real clients: the same methods between a server and nodes, over a transport."""
