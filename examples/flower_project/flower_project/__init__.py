"""A small project of Flower's: a network and data of its own, and a method of Plures."""
