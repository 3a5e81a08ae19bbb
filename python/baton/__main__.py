"""`python -m baton` is the command `baton`."""

from baton._command import main

main()
