#include "cudnn_program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <regex.h>
#include <sstream>

#include <heddle/verify.h>

#include "base/dtype.h"

namespace fake
{

namespace
{

const char kHead[] = "fake cuDNN plan 1";

hd_dtype dtype_of(int type)
{
    switch (type) {
    case HD_DNN_F16:
        return HD_DTYPE_F16;
    case HD_DNN_BF16:
        return HD_DTYPE_BF16;
    default:
        return HD_DTYPE_F32;
    }
}

int64_t count(const Dims &dims)
{
    return dims[0] * dims[1] * dims[2] * dims[3];
}

// Calls fn with each index, in row-major order, and its number.
template <class Fn> void for_each(const Dims &dims, Fn fn)
{
    int64_t n = 0;
    Dims i{};

    for (i[0] = 0; i[0] < dims[0]; i[0]++)
        for (i[1] = 0; i[1] < dims[1]; i[1]++)
            for (i[2] = 0; i[2] < dims[2]; i[2]++)
                for (i[3] = 0; i[3] < dims[3]; i[3]++)
                    fn(i, n++);
}

int64_t offset_of(const Dims &index, const Dims &strides)
{
    return index[0] * strides[0] + index[1] * strides[1] +
           index[2] * strides[2] + index[3] * strides[3];
}

int64_t reach(const Tensor &tensor)
{
    int64_t last = 0;

    for (int d = 0; d < 4; d++)
        last += (tensor.dims[d] - 1) * tensor.strides[d];
    return last + 1;
}

// Tensors as they are while it runs: dense, in row-major order of their dims.
class Machine
{
  public:
    Machine(const Program &program, const Places &places, const Values &values)
        : program_(program), places_(places), values_(values)
    {
    }

    void Run()
    {
        for (const Operation &operation : program_.operations)
            Step(operation);
    }

  private:
    using Dense = std::vector<float>;

    const Tensor &Of(int64_t uid) const
    {
        return program_.tensors.at(uid);
    }

    // The element at each index; a dimension of one index repeats.
    const Dense &Load(int64_t uid)
    {
        const Tensor &tensor = Of(uid);
        auto found = dense_.find(uid);

        if (found != dense_.end())
            return found->second;
        Dense &out = dense_[uid];
        out.resize(static_cast<size_t>(count(tensor.dims)));
        if (tensor.by_value) {
            out[0] = values_.of.at(uid);
            return out;
        }
        const char *at = static_cast<const char *>(places_.at(uid));
        hd_dtype dtype = dtype_of(tensor.type);
        auto size = static_cast<int64_t>(hd_dtype_size(dtype));

        for_each(tensor.dims, [&](const Dims &index, int64_t n) {
            hd_dtype_load_float(dtype,
                                at + offset_of(index, tensor.strides) * size, 1,
                                &out[static_cast<size_t>(n)]);
        });
        return out;
    }

    // Rounded as the tensor is. A product that is to be f32 in memory is wrong
    // there, as the real one's is.
    void Store(int64_t uid, Dense values, bool product)
    {
        const Tensor &tensor = Of(uid);
        hd_dtype dtype = dtype_of(tensor.type);
        auto size = static_cast<int64_t>(hd_dtype_size(dtype));

        if (size == 2) {
            std::vector<uint16_t> codes(values.size());

            hd_dtype_store_float(dtype, values.data(), values.size(),
                                 codes.data());
            hd_dtype_load_float(dtype, codes.data(), values.size(),
                                values.data());
        }
        if (!tensor.is_virtual) {
            char *at = static_cast<char *>(places_.at(uid));

            for_each(tensor.dims, [&](const Dims &index, int64_t n) {
                float value =
                    product && size == 4 ? NAN : values[static_cast<size_t>(n)];

                hd_dtype_store_float(dtype, &value, 1,
                                     at + offset_of(index, tensor.strides) *
                                              size);
            });
        }
        dense_[uid] = std::move(values);
    }

    // Where the element for `index` of a tensor of `dims` is.
    static size_t Place(const Dims &index, const Dims &dims)
    {
        int64_t at = 0;

        for (int d = 0; d < 4; d++)
            at = at * dims[d] + (dims[d] == 1 ? 0 : index[d]);
        return static_cast<size_t>(at);
    }

    void Multiply(const Operation &o)
    {
        const Dims &da = Of(o.a).dims, &db = Of(o.b).dims, &dc = Of(o.y).dims;
        const Dense &a = Load(o.a), &b = Load(o.b);
        Dense c(static_cast<size_t>(count(dc)));
        int64_t m = dc[2], n = dc[3], k = da[3];

        for (int64_t i = 0; i < dc[0] * dc[1]; i++) {
            int64_t batch = i / dc[1], head = i % dc[1];
            auto matrix = [&](const Dims &d) {
                return (batch % d[0] * d[1] + head / (dc[1] / d[1])) * d[2] *
                       d[3];
            };
            const float *x = &a[static_cast<size_t>(matrix(da))];
            const float *y = &b[static_cast<size_t>(matrix(db))];
            float *z = &c[static_cast<size_t>(i * m * n)];

            for (int64_t r = 0; r < m; r++)
                for (int64_t s = 0; s < k; s++)
                    for (int64_t t = 0; t < n; t++)
                        z[r * n + t] += x[r * k + s] * y[s * n + t];
        }
        Store(o.y, std::move(c), true);
    }

    static float Apply(int mode, float x, float b, float t)
    {
        switch (mode) {
        case HD_DNN_ADD:
            return x + b;
        case HD_DNN_MUL:
            return x * b;
        case HD_DNN_DIV:
            return x / b;
        case HD_DNN_SUB:
            return x - b;
        case HD_DNN_EXP:
            return std::exp(x);
        case HD_DNN_LOG:
            return std::log(x);
        case HD_DNN_NOT_LESS:
            return x >= b ? 1.0F : 0.0F;
        case HD_DNN_SELECT:
            return t != 0 ? x : b;
        default: // identity
            return x;
        }
    }

    void Map(const Operation &o)
    {
        const Dims &dims = Of(o.y).dims, one = {1, 1, 1, 1};
        const Dense none(1), &x = Load(o.a);
        const Dense &b = o.b != 0 ? Load(o.b) : none;
        const Dense &t = o.t != 0 ? Load(o.t) : none;
        const Dims &db = o.b != 0 ? Of(o.b).dims : one;
        const Dims &dt = o.t != 0 ? Of(o.t).dims : one;
        Dense y(static_cast<size_t>(count(dims)));

        for_each(dims, [&](const Dims &index, int64_t n) {
            y[static_cast<size_t>(n)] =
                o.mode == HD_DNN_INDEX
                    ? static_cast<float>(index[static_cast<size_t>(o.axis)])
                    : Apply(o.mode, x[Place(index, Of(o.a).dims)],
                            b[Place(index, db)], t[Place(index, dt)]);
        });
        Store(o.y, std::move(y), false);
    }

    // Each element of `a` goes to that of `y` in whose group it is, so that
    // dimensions become shorter by a whole number.
    void Reduce(const Operation &o)
    {
        const Dims &from = Of(o.a).dims, &to = Of(o.y).dims;
        const Dense &x = Load(o.a);
        bool most = o.mode == HD_DNN_REDUCE_MAX;
        Dense y(static_cast<size_t>(count(to)), most ? -INFINITY : 0.0F);

        for_each(from, [&](const Dims &index, int64_t n) {
            Dims into{};

            for (size_t d = 0; d < 4; d++)
                into[d] = index[d] / (from[d] / to[d]);
            float &sum = y[Place(into, to)];
            float value = x[static_cast<size_t>(n)];
            sum = most ? std::max(sum, value) : sum + value;
        });
        Store(o.y, std::move(y), false);
    }

    // The same elements by other strides.
    void Reshape(const Operation &o)
    {
        const Tensor &from = Of(o.a), &to = Of(o.y);
        const Dense &x = Load(o.a);
        Dense line(static_cast<size_t>(std::max(reach(from), reach(to))), NAN);
        Dense y(static_cast<size_t>(count(to.dims)));

        for_each(from.dims, [&](const Dims &index, int64_t n) {
            line[static_cast<size_t>(offset_of(index, from.strides))] =
                x[static_cast<size_t>(n)];
        });
        for_each(to.dims, [&](const Dims &index, int64_t n) {
            y[static_cast<size_t>(n)] =
                line[static_cast<size_t>(offset_of(index, to.strides))];
        });
        Store(o.y, std::move(y), false);
    }

    void Step(const Operation &o)
    {
        switch (o.kind) {
        case HD_DNN_MATMUL_OP:
            return Multiply(o);
        case HD_DNN_REDUCTION_OP:
            return Reduce(o);
        case HD_DNN_RESHAPE_OP:
            return Reshape(o);
        default:
            return Map(o);
        }
    }

    const Program &program_;
    const Places &places_;
    const Values &values_;
    std::map<int64_t, Dense> dense_;
};

// ---------------------------------------------------------------- kernels

// A letter an operation, by which kernels are known.
char letter_of(const Operation &o)
{
    if (o.kind == HD_DNN_MATMUL_OP)
        return 'P';
    if (o.kind == HD_DNN_REDUCTION_OP)
        return o.mode == HD_DNN_REDUCE_MAX ? 'M' : 'S';
    if (o.kind == HD_DNN_RESHAPE_OP)
        return 'R';
    switch (o.mode) {
    case HD_DNN_ADD:
        return '+';
    case HD_DNN_MUL:
        return '*';
    case HD_DNN_DIV:
        return '/';
    case HD_DNN_SUB:
        return '-';
    case HD_DNN_EXP:
        return 'e';
    case HD_DNN_LOG:
        return 'l';
    case HD_DNN_NOT_LESS:
        return '>';
    case HD_DNN_INDEX:
        return 'i';
    case HD_DNN_SELECT:
        return '?';
    default:
        return '=';
    }
}

// Of a row of 16 bits, where it is in memory: side by side, at multiples of 8.
std::string lack_of_tensor(const Tensor &tensor)
{
    bool transposed = tensor.strides[2] == 1 && tensor.strides[3] != 1;
    size_t row = transposed ? 2 : 3;

    if (tensor.is_virtual || tensor.by_value || tensor.type == HD_DNN_F32)
        return "";
    if (tensor.strides[row] != 1)
        return "the innermost stride is not 1";
    if (tensor.dims[row] % 8 != 0)
        return "Embedding dim per head is not a multiple of 8";
    for (size_t d = 0; d < 4; d++) {
        if (d != row && tensor.dims[d] > 1 && tensor.strides[d] % 8 != 0)
            return "a stride is not a multiple of 8";
    }
    return "";
}

template <class T> void write(std::ostream &out, const T &values)
{
    for (int64_t value : values)
        out << ' ' << value;
}

} // namespace

std::string text_of(const Program &program)
{
    std::ostringstream out;

    out << kHead << '\n' << program.tensors.size() << '\n';
    for (const auto &each : program.tensors) {
        const Tensor &t = each.second;

        out << t.uid << ' ' << t.type << ' ' << t.is_virtual << ' '
            << t.by_value;
        write(out, t.dims);
        write(out, t.strides);
        out << '\n';
    }
    out << program.operations.size() << '\n';
    for (const Operation &o : program.operations)
        out << o.kind << ' ' << o.mode << ' ' << o.axis << ' ' << o.a << ' '
            << o.b << ' ' << o.t << ' ' << o.y << '\n';
    out << "end\n";
    return out.str();
}

bool read_program(const std::string &text, Program *out)
{
    std::istringstream in(text);
    std::string head, end;
    size_t n = 0;

    std::getline(in, head);
    in >> n;
    for (size_t i = 0; i < n && in; i++) {
        Tensor t;

        in >> t.uid >> t.type >> t.is_virtual >> t.by_value;
        for (int64_t &value : t.dims)
            in >> value;
        for (int64_t &value : t.strides)
            in >> value;
        out->tensors[t.uid] = t;
    }
    in >> n;
    for (size_t i = 0; i < n && in; i++) {
        Operation o;

        in >> o.kind >> o.mode >> o.axis >> o.a >> o.b >> o.t >> o.y;
        out->operations.push_back(o);
    }
    in >> end;
    return head == kHead && in && end == "end";
}

// Forward, or backward; either may hide what is ahead.
bool has_kernel(const std::string &pattern)
{
    regex_t known;
    bool found = regcomp(&known,
                         "^(P\\*(ii>\\?|i\\+-i>\\?)?M-eSl\\+/P"
                         "|\\*S\\*P\\*-(ii>\\?|i\\+-i>\\?)?eRPS?P-"
                         "\\*\\*RPS?RP=?)$",
                         REG_EXTENDED | REG_NOSUB) == 0;

    if (!found)
        return false;
    found = regexec(&known, pattern.c_str(), 0, nullptr, 0) == 0;
    regfree(&known);
    return found;
}

std::string lack_of(const Program &program)
{
    std::string pattern;

    for (const Operation &o : program.operations)
        pattern += letter_of(o);
    if (!has_kernel(pattern))
        return "no kernel is of this pattern: " + pattern;
    for (const auto &each : program.tensors) {
        std::string lack = lack_of_tensor(each.second);

        if (!lack.empty())
            return lack;
    }
    return "";
}

size_t span_bytes(const Tensor &tensor)
{
    return static_cast<size_t>(reach(tensor)) *
           hd_dtype_size(dtype_of(tensor.type));
}

Values read_values(const Program &program, const Places &places)
{
    Values out;

    for (const auto &each : program.tensors) {
        const Tensor &t = each.second;
        int32_t whole = 0;
        float real = 0;

        if (!t.by_value)
            continue;
        memcpy(&whole, places.at(t.uid), sizeof(whole));
        memcpy(&real, places.at(t.uid), sizeof(real));
        out.of[t.uid] = t.type == HD_DNN_I32 ? static_cast<float>(whole) : real;
    }
    return out;
}

void run_program(const Program &program, const Places &places,
                 const Values &values)
{
    Machine(program, places, values).Run();
}

} // namespace fake
