// Products that wait for words: each for its own and those of the products
// ahead of it, as if they followed each other on a stream.
#ifndef HD_TYPES
#include "codegen/kernels/tiles.cu"
#undef WORDS
#define WORDS 1
#define FIRST_WORD 8 // of at[], by product; behind them what they are to hold
#define LIMIT 1000000000ll // ns that a wait may take
#define UNTOLD (-2)
#endif

// Cycles of a processor that LIMIT is, or fewer: none has many more in a ns.
#define MOST_CYCLES ((i64)LIMIT * 2)

// What others wrote ahead of the word is read behind it.
static inline u32 read_word(const u32 *word)
{
#if defined(__CUDA_ARCH__)
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
                 : "=r"(value)
                 : "l"(word)
                 : "memory");
    return value;
#else
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}

// Until the word is as far as `all`, or for LIMIT: then this is told, and
// nothing is waited for any more.
static inline void await_word(const hd_kernel_args &args, const u32 *word,
                              u32 all, int product)
{
    const i64 since = clock64();
    volatile i64 *told = (volatile i64 *)args.at[TOLD];

    while ((int)(read_word(word) - all) < 0) {
        __nanosleep(20);
        if (clock64() - since <= MOST_CYCLES && told[1] != UNTOLD)
            continue;
        if (told[0] == 0) {
            told[1] = UNTOLD;
            told[2] = product;
            told[3] = read_word(word);
            told[0] = (i64)args.at[TOLD + 1] + 1;
        }
        return;
    }
}

// What the product is behind, unless it was waited for already, up to `*past`:
// whether there was anything to wait for.
static inline bool await_words(const hd_kernel_args &args, int product,
                               int *past)
{
    bool any = false;

    for (; *past <= product; ++*past)
        for (int i = 0; i < WORDS; i++) {
            const u64 at = args.at[FIRST_WORD + *past * WORDS + i];

            if (at != 0) {
                any = true;
                await_word(args, (const u32 *)at,
                           (u32)args.at[FIRST_WORD + PRODUCTS * WORDS], *past);
            }
        }
    return any;
}
