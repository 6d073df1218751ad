"""What mending costs: `make bench`."""
