"""Runs a command and fails unless it exits with the code that is wanted.

usage: exits.py CODE COMMAND...
"""
import subprocess
import sys

code = subprocess.run(sys.argv[2:], check=False).returncode
if code != int(sys.argv[1]):
    sys.exit(f"exit code {code}, expected {sys.argv[1]}: {sys.argv[2:]}")
