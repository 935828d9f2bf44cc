// Blocks of the arena: what is handed out, and what happens when memory ends.
#include "base/arena.h"

#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>

#include "memory.h"

TEST(Arena, MemoryIsZeroedAndAligned)
{
    for (int round = 0; round < 2; round++) { // of memory that others had, too
        hd_arena *arena = hd_arena_create();

        for (size_t bytes = 0; bytes < 3000; bytes += 7) {
            auto *p =
                static_cast<unsigned char *>(hd_arena_alloc(arena, bytes));
            ASSERT_NE(p, nullptr);
            EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % alignof(max_align_t),
                      0u);
            for (size_t i = 0; i < bytes; i++)
                ASSERT_EQ(p[i], 0);
            memset(p, 0xab, bytes); // so that an overlap is seen by a later one
        }
        hd_arena_destroy(arena);
    }
}

TEST(Arena, BigPiecesDoNotWasteTheCurrentBlock)
{
    hd_arena *arena = hd_arena_create();
    auto *before = static_cast<char *>(hd_arena_alloc(arena, 16));
    auto *big = static_cast<char *>(hd_arena_alloc(arena, 5 << 20));
    auto *after = static_cast<char *>(hd_arena_alloc(arena, 16));

    memset(big, 1, 5 << 20);
    EXPECT_EQ(after - before, 16);
    EXPECT_EQ(hd_arena_bytes(arena), 32u + (5 << 20));
    hd_arena_destroy(arena);
}

TEST(Arena, TextIsCopiedAndEndsInNul)
{
    hd_arena *arena = hd_arena_create();

    EXPECT_STREQ(hd_arena_text(arena, "heddles", 6), "heddle");
    EXPECT_STREQ(hd_arena_text(arena, nullptr, 0), "");
    EXPECT_STREQ(hd_arena_printf(arena, "%s_%d", "hop", 7), "hop_7");
    EXPECT_EQ(memcmp(hd_arena_copy(arena, "a\0b", 3), "a\0b", 3), 0);
    hd_arena_destroy(arena);
}

TEST(Arena, AnArrayGrowsWhereItHasNoRoomAndKeepsWhatItHolds)
{
    hd_arena *arena = hd_arena_create();
    int *array = nullptr, room = 0, moved = 0;

    for (int n = 0; n < 1000; n++) {
        int *grown = static_cast<int *>(
            hd_arena_grow(arena, array, n, &room, sizeof *array));

        moved += grown != array;
        array = grown;
        ASSERT_GT(room, n);
        array[n] = 3 * n;
    }
    for (int n = 0; n < 1000; n++)
        EXPECT_EQ(array[n], 3 * n);
    EXPECT_LE(moved, 10);
    hd_arena_destroy(arena);
}

TEST(Arena, RunningOutJumpsToTheGuard)
{
    hd_arena *arena = hd_arena_create();
    jmp_buf guard;
    volatile bool ran_out = false;

    if (setjmp(guard) == 0) {
        EXPECT_EQ(hd_arena_guard(arena, &guard), nullptr);
        hd_arena_alloc(arena, SIZE_MAX - 3);
        ADD_FAILURE() << "handed out more than there is";
    } else {
        ran_out = true;
    }
    EXPECT_TRUE(ran_out);
    EXPECT_EQ(hd_arena_guard(arena, nullptr), &guard);
    hd_arena_destroy(arena);
}

TEST(Arena, AnExhaustedHeapJumpsToTheGuard)
{
    HD_NEEDS_PLAIN_MALLOC();
    EXPECT_TRUE(HoldsWithoutMemory([] {
        hd_arena *arena = hd_arena_create();
        jmp_buf guard;

        if (setjmp(guard) != 0) {
            hd_arena_destroy(arena);
            return true;
        }
        hd_arena_guard(arena, &guard);
        ExhaustMemory();
        for (;;)
            memset(hd_arena_alloc(arena, 1000), 1, 1000);
    }));
}
