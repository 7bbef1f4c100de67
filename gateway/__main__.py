"""``python -m gateway`` is ``admission-gateway``."""

from gateway.tools.cli import main

if __name__ == "__main__":
    main()
