"""Runs a command whose output nobody reads any more. It ends by SIGPIPE, without
a word; one that was started with the signal ignored says what it could not do.

usage: closed_pipe.py COMMAND..
"""
import os
import signal
import subprocess
import sys

for ignored in (False, True):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(sys.argv[1:], stdout=writer, stderr=subprocess.PIPE, text=True,
                          restore_signals=not ignored)
    os.close(writer)
    want = ((1, "heddle: cannot write standard output: Broken pipe\n") if ignored
            else (-signal.SIGPIPE, ""))
    assert (done.returncode, done.stderr) == want, (sys.argv[1:], ignored, done)
