// What a graph of operations says, apart from the descriptors that said it: the
// fake of cuDNN interprets it, one operation after the other, in f32. What a
// wrong graph makes is as wrong as it is with the real one.
#ifndef HD_FAKE_CUDNN_PROGRAM_H
#define HD_FAKE_CUDNN_PROGRAM_H

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "api.h"

namespace fake
{

using Dims = std::array<int64_t, 4>;

struct Tensor {
    int64_t uid = 0;
    int type = HD_DNN_F32;
    Dims dims{}, strides{};
    bool is_virtual = false, by_value = false;
};

// What an operation's descriptor is, and its tensors by uid; 0: it has none.
struct Operation {
    int kind = HD_DNN_MATMUL_OP; // of the descriptor
    int mode = 0;                // of a pointwise operation, or a reduction
    int64_t axis = -1;
    int64_t a = 0, b = 0, t = 0, y = 0;
};

struct Program {
    std::map<int64_t, Tensor> tensors;
    std::vector<Operation> operations;
};

// As what a plan is kept as, and back; false of any other text.
std::string text_of(const Program &program);
bool read_program(const std::string &text, Program *out);

// Why there is no kernel for it, "" if there is one.
std::string lack_of(const Program &program);

// By uid where tensors lie that are not virtual: by value in the host's memory,
// which is read before this returns.
using Places = std::map<int64_t, void *>;
struct Values {
    std::map<int64_t, float> of; // by value
};
Values read_values(const Program &program, const Places &places);

// How many bytes the tensor reaches over.
size_t span_bytes(const Tensor &tensor);

// Runs it. Tensors that are written and lie nowhere virtual must be of 16 bits,
// but for logarithms: what is f32 and a product comes out wrong.
void run_program(const Program &program, const Places &places,
                 const Values &values);

} // namespace fake

#endif
