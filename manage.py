#!/usr/bin/env python3
"""Django's command line; also installed as the console script `dyserve`."""

from dyserve_site.command import main

if __name__ == "__main__":
    main()
