// Tensors out of a .safetensors file: eight bytes of length, a JSON header that
// says where each tensor lies, the tensors back to back.
#ifndef HD_TOOLS_SAFETENSORS_H
#define HD_TOOLS_SAFETENSORS_H

#include "array.h"

// Longer headers are refused. That of a model with 100,000 tensors is shorter.
#define SAFETENSORS_HEADER_LIMIT ((size_t)16 << 20)

// Finds `tensor` in `out->content` and sets everything else. The whole header
// is checked, not that tensor alone: a file that lies anywhere is refused.
// `path` and `out->name` stand in messages.
outcome safetensors_parse(const char *path, const char *tensor, array *out);

#endif
