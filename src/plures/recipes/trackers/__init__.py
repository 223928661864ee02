"""Trackers by name, one file each; each needs the extra 'track'."""
