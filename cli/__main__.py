"""`python -m cli`: the command line, without an installed script."""

from cli.main import main

main(prog_name="daybook")
