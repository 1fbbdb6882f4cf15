"""`python -m latentmdp` is the command line."""

from latentmdp.cli import main

if __name__ == "__main__":
    main()
