SELECT printf('%.*c', 100000000, 'x') || hex(text) FROM events
