// Programs from a compiler that has a graph rather than a text. What is
// appended becomes the lines of a text, which hd_builder_finish parses: the
// rules, the limits and the messages are those of docs/text-form.md, and every
// message about a line has the cookie that the line was given (hd_message), of
// the parse and of all that is later done with the module or a clone of it. A
// cookie of 0 is that of no line: indices count from 1.
//
//   hd_builder_create(&options, diag, &builder);
//   hd_builder_axis(builder, "tp", 4, 1);
//   hd_builder_buffer(builder, &(hd_build_buffer){.., .name = "x"}, 2);
//   hd_builder_op(builder, &(hd_build_op){.., .op = "relu"}, 3);
//   status = hd_builder_finish(builder, diag, &module);
//
// Temps of tensor programs need no buffer of their own: a statement makes them.
//
// Appending cannot fail: what is wrong, or memory that runs out, is kept until
// hd_builder_finish. Axes, parameters, buffers and statements may come in any
// order, each kind keeps its own; what a function is given is not needed after
// it returns.
//
// Names are letters, digits and '_', no digit first; those of buffers are
// without %. Views, expressions and attributes are text as docs/text-form.md
// has it, in which no line, comment or brace may begin or end. A builder is
// used by one thread at a time.
#ifndef HEDDLE_BUILD_H
#define HEDDLE_BUILD_H

#include <heddle/heddle.h>

HD_BEGIN_DECLS

typedef struct hd_builder hd_builder;

// `name` is the program's, and stands in messages where a file's would.
// `stage` is HD_STAGE_TENSOR or HD_STAGE_HOST.
HD_API HD_MUST_USE hd_status hd_builder_create(const char *name, hd_stage stage,
                                               hd_diag *diag, hd_builder **out);
HD_API void hd_builder_destroy(hd_builder *builder);

// mesh name=size
HD_API void hd_builder_axis(hd_builder *builder, const char *name, int64_t size,
                            uint64_t cookie);
// param name = value
HD_API void hd_builder_param(hd_builder *builder, const char *name,
                             int64_t value, uint64_t cookie);
// param name in low..high: what each run is given, from 0 on.
HD_API void hd_builder_size(hd_builder *builder, const char *name, int64_t low,
                            int64_t high, uint64_t cookie);
// streams n: work streams of a host program.
HD_API void hd_builder_streams(hd_builder *builder, int64_t streams,
                               uint64_t cookie);

// in %name : f32[1024, 4096@tp], or temp %name : f32, temp %name : [:, :@tp]
typedef struct hd_build_buffer {
    size_t size;
    hd_role role;
    hd_dtype dtype;
    const char *name;
    int ndims; // 0 is a scalar
    int64_t extent[HD_MAX_DIMS];
    const char *length[HD_MAX_DIMS]; // NULL, or what stands in the extent's
                                     // place: "2 * m", "4093 in 8"
    const char *mark[HD_MAX_DIMS]; // NULL, an axis that shards it, or "stream"
    const char *by[HD_MAX_DIMS];   // NULL, or the buffer that has its counts
    bool shared;                   // peers may write to it or read it
    const char *of;                // NULL, or the buffer whose bytes it renames
    const char *on; // NULL, or which ranks have it: "pp 1", "pp 1..3"
    // Of a temp of a tensor program, which may also be left out altogether:
    bool untyped;  // no `dtype`: it is of the one that its statement makes
    bool unplaced; // nor dimensions: its statement says how long they are, and
                   // where it lies is found. A length ":" leaves one extent
                   // so, and a mark beside it says where that lies
} hd_build_buffer;

HD_API void hd_builder_buffer(hd_builder *builder,
                              const hd_build_buffer *buffer, uint64_t cookie);

// %c, .. = op@axis %a, %b[tp], .. attributes
typedef struct hd_build_op {
    size_t size;
    const char *op;             // "matmul"
    const char *callee;         // NULL, or the function that a `call` names
    const char *axis;           // NULL, or the axis that a transfer goes along
    const char *const *results; // views: "c", "c[tp]", "c[:, 0..4]"
    size_t nresults;
    const char *const *operands; // likewise, or numbers: "1.0", "-3"
    size_t noperands;
    const char *const *attributes; // "dim 0", "act gelu", "accumulate"
    size_t nattributes;
} hd_build_op;

HD_API void hd_builder_op(hd_builder *builder, const hd_build_op *op,
                          uint64_t cookie);

// for variable in first..past {: up to the hd_builder_end that closes it.
HD_API void hd_builder_for(hd_builder *builder, const char *variable,
                           const char *first, const char *past,
                           uint64_t cookie);
// Any other block by its words: "if tp == 0", "else" (after the end of an if),
// "on stream i", "group", "launch".
HD_API void hd_builder_block(hd_builder *builder, const char *words,
                             uint64_t cookie);
HD_API void hd_builder_end(hd_builder *builder, uint64_t cookie);

// A statement as it stands in a text, "let j = (tp + 1) mod 4".
HD_API void hd_builder_line(hd_builder *builder, const char *text,
                            uint64_t cookie);

// Parses and verifies what was appended. HD_ERROR_ARGUMENT says which call was
// given what it may not be, HD_ERROR_INVALID what is wrong with the program.
// However it ends, the builder may then only be destroyed.
HD_API HD_MUST_USE hd_status hd_builder_finish(hd_builder *builder,
                                               hd_diag *diag, hd_module **out);

HD_END_DECLS

#endif
