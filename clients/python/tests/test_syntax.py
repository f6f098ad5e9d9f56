"""The sources are Python 3.9."""

from __future__ import annotations

import ast
import os
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Syntax(unittest.TestCase):
    def test_every_file_is_python_3_9(self) -> None:
        count = 0
        for top in ("src", "tests"):
            for folder, _, files in os.walk(os.path.join(ROOT, top)):
                for file in files:
                    if file.endswith(".py"):
                        path = os.path.join(folder, file)
                        with self.subTest(file), open(path, encoding="utf-8") as stream:
                            ast.parse(stream.read(), path, feature_version=(3, 9))
                        count += 1
        self.assertGreater(count, 30)
