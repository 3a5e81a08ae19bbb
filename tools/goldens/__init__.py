"""The parts of tools/make_goldens.py: what independent implementations say, as small files for our tests."""
