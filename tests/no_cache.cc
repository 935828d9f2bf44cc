// Linked into the test programs that use cuda: nothing that they do gets into
// the cache of whoever runs them, or comes from there. A test of the cache
// names a folder of its own.
#include <cstdlib>

namespace
{

const int off = setenv("HEDDLE_CACHE_DIR", "off", 1);

} // namespace
