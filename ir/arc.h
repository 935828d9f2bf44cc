// Coordinates on an axis, one behind the other; behind the last one comes the
// first.
#ifndef HD_IR_ARC_H
#define HD_IR_ARC_H

#include <stdbool.h>
#include <stdint.h>

typedef struct hd_arc {
    int32_t first, n; // n is at most the size of the axis
} hd_arc;

static inline hd_arc hd_arc_of(int64_t first, int64_t n)
{
    hd_arc arc = {(int32_t)first, (int32_t)n};

    return arc;
}

static inline hd_arc hd_arc_all(int64_t size)
{
    return hd_arc_of(0, size);
}

// How far a coordinate lies behind the first one of the arc.
static inline int64_t hd_arc_offset(hd_arc arc, int64_t size, int64_t coord)
{
    return (coord - arc.first + size) % size;
}

static inline bool hd_arc_has(hd_arc arc, int64_t size, int64_t coord)
{
    return hd_arc_offset(arc, size, coord) < arc.n;
}

static inline bool hd_arc_meets(hd_arc a, hd_arc b, int64_t size)
{
    return a.n > 0 && b.n > 0 &&
           (hd_arc_has(a, size, b.first) || hd_arc_has(b, size, a.first));
}

// Whether `b` has all of `a`.
static inline bool hd_arc_within(hd_arc a, hd_arc b, int64_t size)
{
    return a.n == 0 || b.n == size ||
           hd_arc_offset(b, size, a.first) + a.n <= b.n;
}

static inline bool hd_arc_equal(hd_arc a, hd_arc b, int64_t size)
{
    return a.n == b.n && (a.n == size || a.first == b.first);
}

static inline hd_arc hd_arc_turn(hd_arc arc, int64_t size, int64_t by)
{
    return hd_arc_of((arc.first + by % size + size) % size, arc.n);
}

// Both together; false if they are no arc.
static inline bool hd_arc_join(hd_arc a, hd_arc b, int64_t size, hd_arc *out)
{
    int64_t past;

    if (a.n == 0 || b.n == 0) {
        *out = a.n == 0 ? b : a;
        return true;
    }
    if (hd_arc_offset(a, size, b.first) > a.n) { // not behind it, nor in it
        hd_arc other = a;

        a = b;
        b = other;
    }
    if (hd_arc_offset(a, size, b.first) > a.n)
        return false;
    past = hd_arc_offset(a, size, b.first) + b.n;
    *out = past >= size ? hd_arc_all(size)
           : past > a.n ? hd_arc_of(a.first, past)
                        : a;
    return true;
}

// The least arc with all of both.
static inline hd_arc hd_arc_cover(hd_arc a, hd_arc b, int64_t size)
{
    int64_t ahead, behind;
    hd_arc all;

    if (hd_arc_join(a, b, size, &all))
        return all;
    ahead = hd_arc_offset(a, size, b.first) + b.n;
    behind = hd_arc_offset(b, size, a.first) + a.n;
    return ahead < behind ? hd_arc_of(a.first, ahead)
                          : hd_arc_of(b.first, behind);
}

#endif
