"""One HTML page about runs that works offline."""
