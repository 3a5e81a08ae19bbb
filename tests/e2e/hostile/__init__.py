"""The hostile-client suite: `make hostile`. `tests/e2e/test_hostile.py` runs short forms of its parts."""
