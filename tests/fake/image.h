// What fake_nvrtc makes and fake_cuda loads: a header, and a shared object
// whose NAME_fake_run runs the kernel NAME, block after block, with parameters
// of NAME_fake_bytes.
#ifndef HD_FAKE_IMAGE_H
#define HD_FAKE_IMAGE_H

#include <cstddef>
#include <cstdint>

namespace fake
{

struct Image {
    char magic[16];
    uint64_t bytes; // of what follows
};
constexpr char IMAGE_MAGIC[16] = "FAKECUBIN";

} // namespace fake

#endif
