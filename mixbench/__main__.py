"""`python -m mixbench` does what the console script does."""

from mixbench.cli.main import main

if __name__ == "__main__":
    main()
