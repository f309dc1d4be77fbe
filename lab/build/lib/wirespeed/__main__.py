"""`python -m wirespeed`: the same command where its script is not on the path."""

from wirespeed.cli import main

if __name__ == "__main__":
    main()
