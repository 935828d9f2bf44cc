// What the text of every kernel begins with. Behind it stands what is constant
// for the kernel at hand, as macros and types, then one of the other files.
// Each of these has an instance of its own, for who reads or compiles it alone:
// that is left out where this has been read.
#define HD_TYPES
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
// HD_BOUNDS: so few registers a thread that `n` blocks run on a processor at
// once. HD_THREADS: no more than all `n` threads of a block can have.
#if defined(__CUDA_ARCH__)
#define HD_BOUNDS(n) __launch_bounds__(256, n)
#define HD_THREADS(n) __launch_bounds__(n)
#else
#define HD_BOUNDS(n)
#define HD_THREADS(n)
#endif
