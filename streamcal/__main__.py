"""``python -m streamcal``."""

from streamcal.cli import main

if __name__ == "__main__":
    main()
