// The tables of ops.def, and the views of one op with their access.
#include "ir/op.h"

#include <cstring>
#include <gtest/gtest.h>

TEST(Op, EveryRowIsFoundByItsText)
{
    for (int i = 0; i < HD_NOPS; i++) {
        const hd_op_info *info = hd_op_info_get(static_cast<hd_opcode>(i));
        hd_opcode found;

        ASSERT_TRUE(hd_op_find(info->text, strlen(info->text), &found));
        EXPECT_EQ(found, i) << info->text;
        EXPECT_LE(info->min_outputs, info->max_outputs) << info->text;
        EXPECT_LE(info->min_inputs, info->max_inputs) << info->text;
        EXPECT_LE(info->max_outputs + info->max_inputs, HD_MAX_OPERANDS);
    }
    for (int i = 0; i < HD_NKEYS; i++) {
        const hd_key_info *info = hd_key_info_get(static_cast<hd_key_code>(i));
        hd_key_code found;

        ASSERT_TRUE(hd_key_find(info->text, strlen(info->text), &found));
        EXPECT_EQ(found, i) << info->text;
    }
}

TEST(Op, OnlyWholeWordsAreFound)
{
    hd_opcode op;
    hd_key_code key;
    hd_act act;

    EXPECT_FALSE(hd_op_find("matmu", 5, &op));
    EXPECT_TRUE(hd_op_find("matmuls", 6, &op));
    EXPECT_EQ(op, HD_OP_MATMUL);
    EXPECT_FALSE(hd_op_find("", 0, &op));
    EXPECT_FALSE(hd_key_find("tab", 3, &key));
    EXPECT_TRUE(hd_act_find("silu", 4, &act));
    EXPECT_STREQ(hd_act_text(act), "silu");
    EXPECT_FALSE(hd_act_find("none", 4, &act));
}

TEST(Op, TheRowOfMatmulSaysWhatItTakes)
{
    const hd_op_info *info = hd_op_info_get(HD_OP_MATMUL);

    EXPECT_EQ(info->level, HD_LEVEL_BOTH);
    EXPECT_EQ(info->family, HD_FAMILY_PRODUCT);
    EXPECT_EQ(info->min_inputs, 2);
    EXPECT_TRUE(info->keys >> HD_KEY_TB & 1);
    EXPECT_FALSE(info->keys >> HD_KEY_TO & 1);
    EXPECT_EQ(hd_key_info_get(HD_KEY_AUX)->value, HD_VALUE_WRITE);
}

// A matmul that carries every kind of key.
class OpViews : public testing::Test
{
  protected:
    void SetUp() override
    {
        key[0].code = HD_KEY_TB;
        key[0].view = -1;
        key[1].code = HD_KEY_BIAS;
        key[1].view = 3;
        key[2].code = HD_KEY_AUX;
        key[2].view = 4;
        op.code = HD_OP_MATMUL;
        op.noutputs = 1;
        op.ninputs = 2;
        op.nviews = 5;
        op.nkeys = 3;
        op.key = key;
    }

    hd_key key[3] = {};
    hd_op op = {};
};

TEST_F(OpViews, OfKeysAreNamedByThem)
{
    EXPECT_EQ(hd_op_key_view(&op, HD_KEY_TB), -1);
    EXPECT_EQ(hd_op_key_view(&op, HD_KEY_AUX), 4);
    EXPECT_EQ(hd_op_key_view(&op, HD_KEY_SCALE), -1);
    EXPECT_EQ(hd_op_key(&op, HD_KEY_AUX), &key[2]);
    EXPECT_EQ(hd_op_key(&op, HD_KEY_TA), nullptr);
    EXPECT_TRUE(hd_op_is(&op, HD_UNIT_COMPUTE));
    EXPECT_FALSE(hd_op_is(&op, HD_UNIT_SYNC));
}

TEST_F(OpViews, HaveTheAccessOfTheirPlace)
{
    EXPECT_EQ(hd_op_access(&op, 0), HD_ACCESS_WRITE);
    EXPECT_EQ(hd_op_access(&op, 1), HD_ACCESS_READ);
    EXPECT_EQ(hd_op_access(&op, 2), HD_ACCESS_READ);
    EXPECT_EQ(hd_op_access(&op, 3), HD_ACCESS_READ);  // bias
    EXPECT_EQ(hd_op_access(&op, 4), HD_ACCESS_WRITE); // aux
    for (hd_key_code code : {HD_KEY_ACCUMULATE, HD_KEY_KEEP}) {
        key[0].code = code;
        EXPECT_EQ(hd_op_access(&op, 0), HD_ACCESS_UPDATE);
        EXPECT_EQ(hd_op_access(&op, 4), HD_ACCESS_WRITE);
    }
}

TEST_F(OpViews, OfEventsAreRecordedAndWaitedFor)
{
    op.nkeys = 0;
    op.code = HD_OP_RECORD;
    op.ninputs = 0;
    EXPECT_EQ(hd_op_access(&op, 0), HD_ACCESS_RECORD);
    op.code = HD_OP_WAIT;
    op.noutputs = 0;
    op.ninputs = 1;
    EXPECT_EQ(hd_op_access(&op, 0), HD_ACCESS_WAIT);
    op.code = HD_OP_SEND;
    op.nkeys = 1;
    key[0].code = HD_KEY_DONE;
    key[0].view = 1;
    EXPECT_EQ(hd_op_access(&op, 0), HD_ACCESS_READ);
    EXPECT_EQ(hd_op_access(&op, 1), HD_ACCESS_RECORD);
}

TEST(Op, OfACollectiveNoRankIsUnlikeOthers)
{
    const hd_opcode all[] = {
        HD_OP_ALL_GATHER,
        HD_OP_REDUCE_SCATTER,
        HD_OP_ALL_REDUCE,
        HD_OP_ALL_TO_ALL,
    };
    const hd_opcode other[] = {HD_OP_SEND,   HD_OP_RECV,   HD_OP_BROADCAST,
                               HD_OP_REDUCE, HD_OP_MATMUL, HD_OP_RECORD};
    hd_op op = {};

    for (hd_opcode code : all) {
        op.code = code;
        EXPECT_TRUE(hd_op_is_collective(&op)) << hd_op_info_get(code)->text;
    }
    for (hd_opcode code : other) {
        op.code = code;
        EXPECT_FALSE(hd_op_is_collective(&op)) << hd_op_info_get(code)->text;
    }
}
