"""localstripe on loopback alone: by itself it listens everywhere."""

import sys

from aiohttp import web
from localstripe.server import app

web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
