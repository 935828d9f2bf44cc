// The reference's memory of a program of one rank: the values of its buffers,
// one after the other.
#ifndef HD_TESTS_UNIT_ESTIMATES_H
#define HD_TESTS_UNIT_ESTIMATES_H

#include <algorithm>
#include <vector>

#include <heddle/verify.h>

#include "base/dtype.h"
#include "oracle/numeric.h"

class Estimates
{
  public:
    Estimates() = default;
    // `bytes` says where a buffer's elements are, which are exact.
    template <class Bytes>
    Estimates(const hd_module *module, const Bytes &bytes)
    {
        for (const hd_buffer *b = module->buffers; b != nullptr; b = b->next) {
            size_t n = static_cast<size_t>(hd_type_local_elements(&b->type));
            size_t size = hd_dtype_size(b->type.dtype);
            const char *from = static_cast<const char *>(bytes(b));

            first_.push_back(memory_.size());
            for (size_t i = 0; i < n; i++, from += size) {
                hd_estimate one = {};

                hd_dtype_load(b->type.dtype, from, 1, &one.value);
                if (hd_dtype_is_integer(b->type.dtype))
                    hd_dtype_load_integers(b->type.dtype, from, 1, &one.whole);
                memory_.push_back(one);
            }
        }
    }
    const hd_estimate *At(const hd_buffer *b) const
    {
        return memory_.data() + first_[static_cast<size_t>(b->id)];
    }
    hd_status Compute(const hd_step &step)
    {
        int64_t spare = static_cast<int64_t>(memory_.size());
        hd_work_item item = {};

        memory_.resize(memory_.size() + HD_MAX_SCALARS);
        hd_evaluator e = {&hd_numeric, memory_.data(), nullptr, nullptr, spare};

        item.step = step;
        item.step.span = item.span;
        for (int i = 0; i < step.op->nviews; i++) {
            item.span[i] = step.span[i];
            item.span[i].offset += static_cast<int64_t>(
                first_[static_cast<size_t>(step.span[i].buffer->id)]);
            std::fill_n(item.grain[i], HD_MAX_DIMS, hd_grain{1, 0});
        }
        return hd_compute(&e, &item);
    }

  private:
    std::vector<hd_estimate> memory_;
    std::vector<size_t> first_; // by buffer id
};

#endif
