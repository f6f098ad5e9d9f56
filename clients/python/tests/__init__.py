"""Tests of the Python client. Run them in `clients/python`: `python -m unittest`."""

import os
import sys

if "FIRSTWRITE_INSTALLED" not in os.environ:
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src"))
