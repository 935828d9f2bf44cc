"""Runs a command that may write no file longer than a limit, and prints how it
ended. A stand-in for a disk that is full.

usage: small_disk.py BYTES COMMAND...
"""
import resource
import subprocess
import sys

limit = int(sys.argv[1])


def prepare():
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


done = subprocess.run(sys.argv[2:], check=False, preexec_fn=prepare,
                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
sys.stdout.write(done.stdout.decode())
print("exit code", done.returncode)
