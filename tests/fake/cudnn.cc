// A fake of cuDNN: descriptors that remember what they are told, strict about
// what the real one takes, plans of attention, kept as text as well, and
// execution on fake_cuda's streams by the letter of the graph
// (cudnn_program.h). Making a plan needs no handle and no stream.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cudnn_program.h"
#include "link.h"

#define EXPORT __attribute__((visibility("default")))

extern "C" {
#define HD_DNN(symbol, result, name, ...) EXPORT result symbol(__VA_ARGS__);
#include "runtime/cuda/vendor/cudnn.def"
#undef HD_DNN
}

enum {
    SUCCESS = 0,
    BAD_PARAM = 2000,
    NULL_POINTER = 2002,
    MISALIGNED_POINTER = 2003,
    NOT_FINALIZED = 2004,
    DUPLICATED_ENTRIES = 2009,
    ATTRIBUTE_TYPE = 2010,
    NOT_SUPPORTED = 3000,
    NOT_SUPPORTED_GRAPH_PATTERN = 3001,
    BAD_LAUNCH_PARAM = 3012,
    INTERNAL_ERROR = 4000,
    EXECUTION_FAILED = 5000,
};

struct cudnnContext {
    hd_cu_stream stream = nullptr;
};

namespace
{

struct Content;
using Shared = std::shared_ptr<const Content>;

struct Value {
    int type = 0;
    std::vector<int64_t> numbers; // of data types, modes, booleans and integers
    std::vector<void *> pointers;
    std::vector<Shared> descs;
    std::string text;
};

// What a descriptor is once it is final; others that name it keep it.
struct Content {
    int kind = 0;
    std::map<int, Value> values;
    fake::Program program; // of a graph, and of what is made of one
    int64_t way = 0;       // of a config
    std::string lack;      // why there is no kernel

    const Value &At(int attribute) const
    {
        return values.at(attribute);
    }
    int64_t Number(int attribute) const
    {
        return At(attribute).numbers.at(0);
    }
    bool Has(int attribute) const
    {
        return values.count(attribute) > 0;
    }
};

struct Descriptor {
    std::shared_ptr<Content> content = std::make_shared<Content>();
    bool final = false;
};

thread_local std::string last_error;

int64_t setting(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);

    return text == nullptr ? otherwise : strtoll(text, nullptr, 0);
}

int64_t workspace_bytes()
{
    return setting("FAKE_CUDNN_WORKSPACE", 256);
}

int lack(int status, const std::string &reason)
{
    last_error = "Warning: CUDNN_STATUS_NOT_SUPPORTED; Reason: " + reason +
                 "\nWarning: CUDNN_STATUS_NOT_SUPPORTED; Reason: finalize()\n";
    return status;
}

// ------------------------------------------------------------- attributes

// What a kind has: each attribute once, with its type and how many there are.
struct Rule {
    int kind, attribute, type;
    int64_t least, most;
    bool needed;
};

constexpr int64_t MANY = 64;
const Rule kRules[] = {
    {HD_DNN_DEVICE, HD_DNN_DEVICE_ID, HD_DNN_TYPE_INT32, 1, 1, true},
    {HD_DNN_TENSOR, HD_DNN_TENSOR_UID, HD_DNN_TYPE_INT64, 1, 1, true},
    {HD_DNN_TENSOR, HD_DNN_TENSOR_TYPE, HD_DNN_TYPE_DATA_TYPE, 1, 1, true},
    {HD_DNN_TENSOR, HD_DNN_TENSOR_DIMS, HD_DNN_TYPE_INT64, 4, 4, true},
    {HD_DNN_TENSOR, HD_DNN_TENSOR_STRIDES, HD_DNN_TYPE_INT64, 4, 4, true},
    {HD_DNN_TENSOR, HD_DNN_TENSOR_ALIGNMENT, HD_DNN_TYPE_INT64, 1, 1, true},
    {HD_DNN_TENSOR, HD_DNN_TENSOR_VIRTUAL, HD_DNN_TYPE_BOOL, 1, 1, false},
    {HD_DNN_TENSOR, HD_DNN_TENSOR_BY_VALUE, HD_DNN_TYPE_BOOL, 1, 1, false},
    {HD_DNN_MATMUL, HD_DNN_MATMUL_TYPE, HD_DNN_TYPE_DATA_TYPE, 1, 1, true},
    {HD_DNN_MATMUL_OP, HD_DNN_MATMUL_OP_A, HD_DNN_TYPE_DESC, 1, 1, true},
    {HD_DNN_MATMUL_OP, HD_DNN_MATMUL_OP_B, HD_DNN_TYPE_DESC, 1, 1, true},
    {HD_DNN_MATMUL_OP, HD_DNN_MATMUL_OP_C, HD_DNN_TYPE_DESC, 1, 1, true},
    {HD_DNN_MATMUL_OP, HD_DNN_MATMUL_OP_DESC, HD_DNN_TYPE_DESC, 1, 1, true},
    {HD_DNN_POINTWISE, HD_DNN_POINTWISE_MODE, HD_DNN_TYPE_POINTWISE, 1, 1,
     true},
    {HD_DNN_POINTWISE, HD_DNN_POINTWISE_PRECISION, HD_DNN_TYPE_DATA_TYPE, 1, 1,
     true},
    {HD_DNN_POINTWISE, HD_DNN_POINTWISE_AXIS, HD_DNN_TYPE_INT64, 1, 1, false},
    {HD_DNN_POINTWISE_OP, HD_DNN_POINTWISE_OP_DESC, HD_DNN_TYPE_DESC, 1, 1,
     true},
    {HD_DNN_POINTWISE_OP, HD_DNN_POINTWISE_OP_X, HD_DNN_TYPE_DESC, 1, 1, true},
    {HD_DNN_POINTWISE_OP, HD_DNN_POINTWISE_OP_B, HD_DNN_TYPE_DESC, 1, 1, false},
    {HD_DNN_POINTWISE_OP, HD_DNN_POINTWISE_OP_T, HD_DNN_TYPE_DESC, 1, 1, false},
    {HD_DNN_POINTWISE_OP, HD_DNN_POINTWISE_OP_Y, HD_DNN_TYPE_DESC, 1, 1, true},
    {HD_DNN_REDUCTION, HD_DNN_REDUCTION_MODE, HD_DNN_TYPE_REDUCTION, 1, 1,
     true},
    {HD_DNN_REDUCTION, HD_DNN_REDUCTION_TYPE, HD_DNN_TYPE_DATA_TYPE, 1, 1,
     true},
    {HD_DNN_REDUCTION_OP, HD_DNN_REDUCTION_OP_X, HD_DNN_TYPE_DESC, 1, 1, true},
    {HD_DNN_REDUCTION_OP, HD_DNN_REDUCTION_OP_Y, HD_DNN_TYPE_DESC, 1, 1, true},
    {HD_DNN_REDUCTION_OP, HD_DNN_REDUCTION_OP_DESC, HD_DNN_TYPE_DESC, 1, 1,
     true},
    {HD_DNN_RESHAPE_OP, HD_DNN_RESHAPE_OP_X, HD_DNN_TYPE_DESC, 1, 1, true},
    {HD_DNN_RESHAPE_OP, HD_DNN_RESHAPE_OP_Y, HD_DNN_TYPE_DESC, 1, 1, true},
    {HD_DNN_GRAPH, HD_DNN_GRAPH_OPS, HD_DNN_TYPE_DESC, 1, MANY, true},
    {HD_DNN_HEURISTIC, HD_DNN_HEURISTIC_GRAPH, HD_DNN_TYPE_DESC, 1, 1, true},
    {HD_DNN_HEURISTIC, HD_DNN_HEURISTIC_MODE, HD_DNN_TYPE_HEURISTIC, 1, 1,
     true},
    {HD_DNN_HEURISTIC, HD_DNN_HEURISTIC_DEVICE, HD_DNN_TYPE_DESC, 1, 1, true},
    {HD_DNN_PLAN, HD_DNN_PLAN_CONFIG, HD_DNN_TYPE_DESC, 1, 1, false},
    {HD_DNN_PLAN, HD_DNN_PLAN_JSON, HD_DNN_TYPE_CHAR, 1, INT64_MAX, false},
    {HD_DNN_PLAN, HD_DNN_PLAN_DEVICE, HD_DNN_TYPE_DESC, 1, 1, true},
    {HD_DNN_PACK, HD_DNN_PACK_UIDS, HD_DNN_TYPE_INT64, 1, MANY, true},
    {HD_DNN_PACK, HD_DNN_PACK_POINTERS, HD_DNN_TYPE_POINTER, 1, MANY, true},
    {HD_DNN_PACK, HD_DNN_PACK_WORKSPACE, HD_DNN_TYPE_POINTER, 1, 1, true},
};

const Rule *rule_of(int kind, int attribute)
{
    for (const Rule &rule : kRules) {
        if (rule.kind == kind && rule.attribute == attribute)
            return &rule;
    }
    return nullptr;
}

bool is_kind(int kind)
{
    if (kind == HD_DNN_CONFIG)
        return true;
    for (const Rule &rule : kRules) {
        if (rule.kind == kind)
            return true;
    }
    return false;
}

template <class T> std::vector<int64_t> numbers(int64_t n, const void *value)
{
    std::vector<int64_t> out;
    T one;

    for (int64_t i = 0; i < n; i++) {
        memcpy(&one, static_cast<const char *>(value) + i * int64_t(sizeof(T)),
               sizeof(T));
        out.push_back(static_cast<int64_t>(one));
    }
    return out;
}

int read_descs(int64_t n, const void *value, Value *out)
{
    auto *desc = static_cast<const hd_dnn_desc *>(value);

    for (int64_t i = 0; i < n; i++) {
        if (desc[i] == nullptr)
            return NULL_POINTER;
        auto *named = static_cast<Descriptor *>(desc[i]);

        if (!named->final)
            return NOT_FINALIZED;
        out->descs.push_back(named->content);
    }
    return SUCCESS;
}

int read_value(int type, int64_t n, const void *value, Value *out)
{
    out->type = type;
    switch (type) {
    case HD_DNN_TYPE_DESC:
        return read_descs(n, value, out);
    case HD_DNN_TYPE_POINTER:
        for (int64_t i = 0; i < n; i++)
            out->pointers.push_back(static_cast<void *const *>(value)[i]);
        return SUCCESS;
    case HD_DNN_TYPE_CHAR:
        out->text.assign(static_cast<const char *>(value),
                         static_cast<size_t>(n));
        return SUCCESS;
    case HD_DNN_TYPE_INT64:
        out->numbers = numbers<int64_t>(n, value);
        return SUCCESS;
    case HD_DNN_TYPE_BOOL:
        out->numbers = numbers<bool>(n, value);
        return SUCCESS;
    default:
        out->numbers = numbers<int32_t>(n, value);
        return SUCCESS;
    }
}

// --------------------------------------------------------------- graphs

fake::Tensor tensor_of(const Content &c)
{
    fake::Tensor t;

    t.uid = c.Number(HD_DNN_TENSOR_UID);
    t.type = static_cast<int>(c.Number(HD_DNN_TENSOR_TYPE));
    for (size_t d = 0; d < 4; d++) {
        t.dims[d] = c.At(HD_DNN_TENSOR_DIMS).numbers[d];
        t.strides[d] = c.At(HD_DNN_TENSOR_STRIDES).numbers[d];
    }
    t.is_virtual =
        c.Has(HD_DNN_TENSOR_VIRTUAL) && c.Number(HD_DNN_TENSOR_VIRTUAL) != 0;
    t.by_value =
        c.Has(HD_DNN_TENSOR_BY_VALUE) && c.Number(HD_DNN_TENSOR_BY_VALUE) != 0;
    return t;
}

bool is_same(const fake::Tensor &a, const fake::Tensor &b)
{
    return a.type == b.type && a.dims == b.dims && a.strides == b.strides &&
           a.is_virtual == b.is_virtual && a.by_value == b.by_value;
}

// 0 for an attribute that the operation lacks.
int add_tensor(const Content &op, int attribute, fake::Program *program,
               int64_t *uid)
{
    if (!op.Has(attribute))
        return SUCCESS;
    fake::Tensor t = tensor_of(*op.At(attribute).descs[0]);
    auto found = program->tensors.emplace(t.uid, t);

    *uid = t.uid;
    return found.second || is_same(found.first->second, t) ? SUCCESS
                                                           : DUPLICATED_ENTRIES;
}

struct Parts {
    int a, b, t, y, desc, mode;
};

Parts parts_of(int kind)
{
    switch (kind) {
    case HD_DNN_MATMUL_OP:
        return {HD_DNN_MATMUL_OP_A, HD_DNN_MATMUL_OP_B,    -1,
                HD_DNN_MATMUL_OP_C, HD_DNN_MATMUL_OP_DESC, -1};
    case HD_DNN_REDUCTION_OP:
        return {HD_DNN_REDUCTION_OP_X,
                -1,
                -1,
                HD_DNN_REDUCTION_OP_Y,
                HD_DNN_REDUCTION_OP_DESC,
                HD_DNN_REDUCTION_MODE};
    case HD_DNN_RESHAPE_OP:
        return {HD_DNN_RESHAPE_OP_X, -1, -1, HD_DNN_RESHAPE_OP_Y, -1, -1};
    default:
        return {HD_DNN_POINTWISE_OP_X,    HD_DNN_POINTWISE_OP_B,
                HD_DNN_POINTWISE_OP_T,    HD_DNN_POINTWISE_OP_Y,
                HD_DNN_POINTWISE_OP_DESC, HD_DNN_POINTWISE_MODE};
    }
}

int add_operation(const Content &op, fake::Program *program)
{
    const Parts parts = parts_of(op.kind);
    const Content &desc = parts.desc < 0 ? op : *op.At(parts.desc).descs[0];
    fake::Operation o;
    int status = SUCCESS;

    o.kind = op.kind;
    if (parts.mode >= 0)
        o.mode = static_cast<int>(desc.Number(parts.mode));
    if (desc.Has(HD_DNN_POINTWISE_AXIS) && desc.kind == HD_DNN_POINTWISE)
        o.axis = desc.Number(HD_DNN_POINTWISE_AXIS);
    for (auto part :
         {std::make_pair(parts.a, &o.a), std::make_pair(parts.b, &o.b),
          std::make_pair(parts.t, &o.t), std::make_pair(parts.y, &o.y)}) {
        if (status == SUCCESS)
            status = add_tensor(op, part.first, program, part.second);
    }
    if (status == SUCCESS && o.mode == HD_DNN_INDEX && o.axis < 0)
        status = BAD_PARAM;
    program->operations.push_back(o);
    return status;
}

// Every tensor is read from memory, by value, or from an operation before.
int check_order(const fake::Program &program)
{
    std::set<int64_t> made;

    for (const fake::Operation &o : program.operations) {
        for (int64_t uid : {o.a, o.b, o.t}) {
            if (uid != 0 && program.tensors.at(uid).is_virtual &&
                made.count(uid) == 0)
                return BAD_PARAM;
        }
        if (!made.insert(o.y).second)
            return DUPLICATED_ENTRIES;
    }
    return SUCCESS;
}

int finalize_graph(Content *c)
{
    for (const Shared &op : c->At(HD_DNN_GRAPH_OPS).descs) {
        int status = add_operation(*op, &c->program);

        if (status != SUCCESS)
            return status;
    }
    return check_order(c->program);
}

// ----------------------------------------------------------------- plans

int64_t count_ways()
{
    return setting("FAKE_CUDNN_WAYS", 2);
}

int finalize_plan(Content *c)
{
    if (c->Has(HD_DNN_PLAN_JSON))
        return fake::read_program(c->At(HD_DNN_PLAN_JSON).text, &c->program)
                   ? SUCCESS
                   : BAD_PARAM;
    if (!c->Has(HD_DNN_PLAN_CONFIG))
        return BAD_PARAM;
    const Content &config = *c->At(HD_DNN_PLAN_CONFIG).descs[0];

    c->program = config.program;
    (void)fake::fails("cuDNN plans that are built"); // counts it
    return config.way < setting("FAKE_CUDNN_LACKING", 0)
               ? lack(BAD_LAUNCH_PARAM, "the kernel does not fit")
               : SUCCESS;
}

int finalize_pack(const Content &c)
{
    const std::vector<int64_t> &uids = c.At(HD_DNN_PACK_UIDS).numbers;
    std::set<int64_t> each(uids.begin(), uids.end());

    if (each.size() != uids.size())
        return DUPLICATED_ENTRIES;
    return uids.size() == c.At(HD_DNN_PACK_POINTERS).pointers.size()
               ? SUCCESS
               : BAD_PARAM;
}

int finalize(Content *c)
{
    for (const Rule &rule : kRules) {
        if (rule.kind == c->kind && rule.needed && !c->Has(rule.attribute))
            return BAD_PARAM;
    }
    switch (c->kind) {
    case HD_DNN_GRAPH:
        return finalize_graph(c);
    case HD_DNN_HEURISTIC:
        c->program = c->At(HD_DNN_HEURISTIC_GRAPH).descs[0]->program;
        c->lack = fake::lack_of(c->program);
        return SUCCESS;
    case HD_DNN_PLAN:
        return finalize_plan(c);
    case HD_DNN_PACK:
        return finalize_pack(*c);
    default:
        return SUCCESS;
    }
}

// Without room it tells how many there may be; with it, how many there are.
int get_ways(const Content &heuristic, int64_t room, int64_t *n, void *value)
{
    int64_t ways = heuristic.lack.empty() ? count_ways() : 0;

    if (room == 0) {
        *n = ways + 1;
        return SUCCESS;
    }
    *n = std::min(ways, room);
    for (int64_t i = 0; i < *n; i++) {
        auto *config =
            static_cast<Descriptor *>(static_cast<hd_dnn_desc *>(value)[i]);

        if (config == nullptr || config->content->kind != HD_DNN_CONFIG)
            return BAD_PARAM;
        config->content->program = heuristic.program;
        config->content->way = i;
        config->final = true;
    }
    if (!heuristic.lack.empty())
        (void)lack(NOT_SUPPORTED_GRAPH_PATTERN, heuristic.lack);
    return SUCCESS;
}

// ------------------------------------------------------------- execution

// A run as it was asked for: later changes to descriptors do not matter.
struct Execution {
    fake::Program program;
    fake::Places places;
    fake::Values values;
    void *workspace;
    size_t bytes; // of that
};

bool reaches(const void *at, size_t bytes)
{
    return fake::find_in_cuda<decltype(fake_cuda_reaches)>("fake_cuda_reaches")(
               at, bytes) != 0;
}

void free_execution(void *data)
{
    delete static_cast<Execution *>(data);
}

// What was cleared is cleared still, and is this run's alone while it runs.
int attend(void *data)
{
    const Execution &e = *static_cast<const Execution *>(data);
    const std::vector<char> zero(e.bytes, 0), mark(e.bytes, 0x5a);
    char *at = static_cast<char *>(e.workspace);

    for (const auto &place : e.places) {
        const fake::Tensor &t = e.program.tensors.at(place.first);

        if (!t.by_value && !reaches(place.second, fake::span_bytes(t)))
            return 1;
    }
    if (!std::equal(zero.begin(), zero.end(), at))
        return 1;
    std::copy(mark.begin(), mark.end(), at);
    fake::run_program(e.program, e.places, e.values);
    return !std::equal(mark.begin(), mark.end(), at);
}

// What kernels of its own before and after that do is done there.
int begin(void *data)
{
    const Execution &e = *static_cast<const Execution *>(data);

    return e.bytes > 0 && !reaches(e.workspace, e.bytes);
}

int end(void *data)
{
    return begin(data);
}

typedef int (*Kernel)(void *data);

std::vector<Kernel> kernels()
{
    std::vector<Kernel> kernels{attend};
    int64_t n = setting("FAKE_CUDNN_KERNELS", 1);

    if (n > 1)
        kernels.insert(kernels.begin(), begin);
    while (static_cast<int64_t>(kernels.size()) < n)
        kernels.push_back(end);
    return kernels;
}

// Where every tensor is that is not virtual.
int find_places(const Content &pack, Execution *out)
{
    const std::vector<int64_t> &uids = pack.At(HD_DNN_PACK_UIDS).numbers;
    const std::vector<void *> &at = pack.At(HD_DNN_PACK_POINTERS).pointers;
    fake::Places places;

    for (size_t i = 0; i < uids.size(); i++)
        places[uids[i]] = at[i];
    for (const auto &each : out->program.tensors) {
        const fake::Tensor &t = each.second;

        if (t.is_virtual)
            continue;
        if (places.count(t.uid) == 0 || places[t.uid] == nullptr)
            return NULL_POINTER;
        if (!t.by_value && reinterpret_cast<uintptr_t>(places[t.uid]) % 16 != 0)
            return MISALIGNED_POINTER;
        out->places[t.uid] = places[t.uid];
    }
    return SUCCESS;
}

} // namespace

// ---------------------------------------------------------- entry points

size_t cudnnGetVersion(void)
{
    return static_cast<size_t>(setting("FAKE_CUDNN_VERSION", 91900));
}

const char *cudnnGetErrorString(int status)
{
    switch (status) {
    case SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case NULL_POINTER:
        return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
    case MISALIGNED_POINTER:
        return "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER";
    case NOT_FINALIZED:
        return "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED";
    case DUPLICATED_ENTRIES:
        return "CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES";
    case ATTRIBUTE_TYPE:
        return "CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE";
    case NOT_SUPPORTED_GRAPH_PATTERN:
        return "CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN";
    case BAD_LAUNCH_PARAM:
        return "CUDNN_STATUS_NOT_SUPPORTED_BAD_LAUNCH_PARAM";
    case INTERNAL_ERROR:
        return "CUDNN_STATUS_INTERNAL_ERROR";
    case EXECUTION_FAILED:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    default:
        return "CUDNN_STATUS unknown";
    }
}

void cudnnGetLastErrorString(char *out, size_t bytes)
{
    if (bytes == 0)
        return;
    strncpy(out, last_error.c_str(), bytes - 1);
    out[bytes - 1] = '\0';
    last_error.clear();
}

#define ENTER()                    \
    do {                           \
        if (fake::fails(__func__)) \
            return INTERNAL_ERROR; \
    } while (0)

int cudnnCreate(hd_dnn_handle *out)
{
    ENTER();
    *out = new cudnnContext;
    fake::account("cuDNN handles", 1);
    return SUCCESS;
}

int cudnnDestroy(hd_dnn_handle handle)
{
    bool failing = fake::fails(__func__);

    if (handle == nullptr)
        return BAD_PARAM;
    delete handle;
    fake::account("cuDNN handles", -1);
    return failing ? INTERNAL_ERROR : SUCCESS;
}

int cudnnSetStream(hd_dnn_handle handle, hd_cu_stream stream)
{
    ENTER();
    if (handle == nullptr)
        return BAD_PARAM;
    handle->stream = stream;
    return SUCCESS;
}

int cudnnBackendCreateDescriptor(int kind, hd_dnn_desc *out)
{
    ENTER();
    if (!is_kind(kind))
        return NOT_SUPPORTED;
    auto *desc = new Descriptor;

    desc->content->kind = kind;
    *out = desc;
    fake::account("cuDNN descriptors", 1);
    return SUCCESS;
}

int cudnnBackendDestroyDescriptor(hd_dnn_desc desc)
{
    bool failing = fake::fails(__func__);

    if (desc == nullptr)
        return BAD_PARAM;
    delete static_cast<Descriptor *>(desc);
    fake::account("cuDNN descriptors", -1);
    return failing ? INTERNAL_ERROR : SUCCESS;
}

int cudnnBackendSetAttribute(hd_dnn_desc desc, int attribute, int type,
                             int64_t n, const void *value)
{
    ENTER();
    auto *d = static_cast<Descriptor *>(desc);
    Value read;

    if (d == nullptr || value == nullptr)
        return NULL_POINTER;
    const Rule *rule = rule_of(d->content->kind, attribute);

    if (d->final || rule == nullptr || n < rule->least || n > rule->most)
        return BAD_PARAM;
    if (rule->type != type)
        return ATTRIBUTE_TYPE;
    int status = read_value(type, n, value, &read);

    if (status == SUCCESS)
        d->content->values[attribute] = read;
    return status;
}

static int get_text(const std::string &text, int64_t room, int64_t *n,
                    void *value)
{
    *n = static_cast<int64_t>(text.size());
    if (room > 0)
        memcpy(value, text.data(),
               std::min(text.size(), static_cast<size_t>(room)));
    return SUCCESS;
}

int cudnnBackendGetAttribute(const hd_dnn_desc desc, int attribute, int type,
                             int64_t room, int64_t *n, void *value)
{
    ENTER();
    auto *d = static_cast<Descriptor *>(desc);

    if (d == nullptr || n == nullptr)
        return NULL_POINTER;
    const Content &c = *d->content;

    if (!d->final)
        return NOT_FINALIZED;
    if (c.kind == HD_DNN_HEURISTIC && attribute == HD_DNN_HEURISTIC_RESULTS &&
        type == HD_DNN_TYPE_DESC)
        return get_ways(c, room, n, value);
    if (c.kind == HD_DNN_PLAN && attribute == HD_DNN_PLAN_JSON &&
        type == HD_DNN_TYPE_CHAR)
        return get_text(fake::text_of(c.program), room, n, value);
    if (c.kind == HD_DNN_PLAN && attribute == HD_DNN_PLAN_WORKSPACE &&
        type == HD_DNN_TYPE_INT64 && room == 1) {
        const int64_t bytes = workspace_bytes();

        *n = 1;
        memcpy(value, &bytes, sizeof(bytes));
        return SUCCESS;
    }
    return BAD_PARAM;
}

int cudnnBackendFinalize(hd_dnn_desc desc)
{
    ENTER();
    auto *d = static_cast<Descriptor *>(desc);

    if (d == nullptr)
        return NULL_POINTER;
    if (d->final)
        return BAD_PARAM;
    int status = finalize(d->content.get());

    d->final = status == SUCCESS;
    return status;
}

int cudnnBackendExecute(hd_dnn_handle handle, hd_dnn_desc plan,
                        hd_dnn_desc pack)
{
    ENTER();
    auto *p = static_cast<Descriptor *>(plan);
    auto *v = static_cast<Descriptor *>(pack);
    auto *enqueue =
        fake::find_in_cuda<decltype(fake_cuda_enqueue)>("fake_cuda_enqueue");
    hd_cu_result (*clear)(hd_cu_ptr, unsigned char, size_t, hd_cu_stream) =
        fake::find_in_cuda<hd_cu_result(hd_cu_ptr, unsigned char, size_t,
                                        hd_cu_stream)>("cuMemsetD8Async");
    Execution e;

    if (handle == nullptr || p == nullptr || v == nullptr ||
        enqueue == nullptr || clear == nullptr)
        return NULL_POINTER;
    if (!p->final || !v->final)
        return NOT_FINALIZED;
    if (p->content->kind != HD_DNN_PLAN || v->content->kind != HD_DNN_PACK)
        return BAD_PARAM;
    e.program = p->content->program;
    e.workspace = v->content->At(HD_DNN_PACK_WORKSPACE).pointers[0];
    e.bytes = static_cast<size_t>(workspace_bytes());
    int status = find_places(*v->content, &e);

    if (status != SUCCESS)
        return status;
    if (e.workspace == nullptr && e.bytes > 0)
        return NULL_POINTER;
    e.values = fake::read_values(e.program, e.places);
    if (e.bytes > 0 && clear(reinterpret_cast<uintptr_t>(e.workspace), 0,
                             e.bytes, handle->stream) != 0)
        return EXECUTION_FAILED;
    if (setting("FAKE_CUDNN_CLEARS", 0) != 0 &&
        clear(reinterpret_cast<uintptr_t>(e.places.begin()->second), 0, 0,
              handle->stream) != 0)
        return EXECUTION_FAILED;
    for (Kernel kernel : kernels()) {
        if (enqueue(handle->stream, kernel, new Execution(e), free_execution,
                    nullptr) != 0)
            return EXECUTION_FAILED;
    }
    return SUCCESS;
}
