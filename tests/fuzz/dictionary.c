// Prints libFuzzer's dictionary of the text form: the words of ops.def, which
// nobody has to keep in step, and those of the grammar.
#include <stdio.h>

static const char *const words[] = {
#define HD_OP(code, text, ...) text,
#include "ir/ops.def"
#undef HD_OP
#define HD_KEY(code, text, value) text,
#include "ir/ops.def"
#undef HD_KEY
    "heddle 1\n",
    "heddle 2\n",
    "tensor program p\n",
    "host program p\n",
    "after event",
    "after transfer",
    "after stream",
    "after reshard",
    "param n=4",
    "mesh tp=4\n",
    "mesh tp=2, dp=2\n",
    "streams 2\n",
    "in ",
    "out ",
    "inout ",
    "temp ",
    "shared",
    "of %a",
    "let i=",
    "for j in 0..4",
    "if ",
    "else",
    "on stream ",
    "group",
    "launch",
    "mod",
    "and",
    "or",
    "not",
    "size tp",
    "min(tp, 2)",
    "max(tp, 1)",
    "cdiv(tp + 1, 2)",
    "tp",
    "dp",
    "@tp",
    "@dp",
    "@stream",
    "relu",
    "gelu",
    "silu",
    "f64",
    "f32",
    "f16",
    "bf16",
    "f8e4m3",
    "f8e5m2",
    "i64",
    "i32",
    "u8",
    "i8",
    "event",
    "%a : f32[4@tp, 8]",
    "%a : f32[13@tp, 3]",
    "13 in 4",
    "8 by %n",
    "] on tp 1..3",
    "tp of 4",
    "1 of 3",
    "%e : event[4]",
    "%a",
    "%e[j]",
    "%a[tp]",
    "..",
    "==",
    "!=",
    "<=",
    ">=",
    "4096",
    "65536",
    "0x10",
    "1_000",
    "1e-3",
    "9223372036854775807",
    "(tp+1) mod size tp",
    "// x\n",
    "\xef\xbb\xbf"};

int main(void)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        putchar('"');
        for (const char *c = words[i]; *c != '\0'; c++)
            if (*c < ' ' || *c > '~')
                printf("\\x%02x", (unsigned)(unsigned char)*c);
            else
                putchar(*c);
        puts("\"");
    }
    return 0;
}
