// What of DLPack the package needs, as DLPack lays it out.
#ifndef HEDDLE_PYTHON_DLPACK_H
#define HEDDLE_PYTHON_DLPACK_H

#include <stdint.h>

enum { HEDDLE_ON_CUDA = 2 }; // a device's type

struct DLTensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

// From version 1.0 on.
struct heddle_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct heddle_versioned *managed);
    uint64_t flags;
    struct DLTensor array;
};

// Of version 1: how a library tells of its arrays, as a table of functions that
// return other than 0 with an exception.
struct heddle_exchange {
    struct {
        uint32_t major, minor;
    } version;
    const struct heddle_exchange *before; // of an older version, or NULL
    void (*unused[3])(void);              // by which arrays change hands
    int (*look)(void *object, struct DLTensor *out); // for as long as it is not
                                                     // changed. May be NULL
    int (*find_stream)(int32_t device_type, int32_t device_id, void **out);
};

#endif
