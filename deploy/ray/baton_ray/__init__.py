"""Baton behind Ray Serve: Ray starts, watches and scales `baton serve` processes, and passes requests through to them."""
