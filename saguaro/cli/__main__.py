"""`python -m saguaro.cli`, where the `saguaro` script is not on the path."""

from saguaro.cli import main

main()
