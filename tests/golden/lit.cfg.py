# Golden tests, run by lit. A case is NAME.hd with NAME.want beside it; its RUN
# lines go to its folder, so that messages name the bare file, and pipe what
# heddle prints into %want, which compares.
#
#   HEDDLE_UPDATE=1 rewrites every .want from what is printed: read the diff.
import os
import sys

import lit.formats

config.name = "golden"
config.test_format = lit.formats.ShTest(execute_external=True)
config.suffixes = [".hd"]
config.test_source_root = os.path.dirname(os.path.abspath(__file__))
config.test_exec_root = os.environ["HEDDLE_TEST_OUTPUT"]
config.environment["PATH"] = os.pathsep.join(
    [
        os.environ["HEDDLE_BIN"],
        os.environ["HEDDLE_LLVM_BIN"],
        # The interpreter itself: python3 may be a script that looks for it.
        os.path.dirname(sys.executable),
        os.environ["PATH"],
    ]
)
for name in ("HEDDLE_UPDATE", "HEDDLE_CHAOS", "ASAN_OPTIONS", "TSAN_OPTIONS"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
# What a test leaves on disk is its own.
config.environment["HEDDLE_CACHE_DIR"] = "off"
config.substitutions.append(("%want", "sh %S/../want.sh %s"))
config.substitutions.append(("%file", "%basename_t"))
