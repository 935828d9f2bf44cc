// Lowering: random tensor programs under random options keep their answer, and
// what is issued orders every two accesses that conflict.
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include <heddle/verify.h>

#include "tests/seed.h"
#include "tests/unit/program.h"

extern "C" {
#include "lower/build.h"
#include "tests/info.h"
}

namespace
{

// --------------------------------------------------------------- generator

struct Dim {
    int64_t extent;
    int mark; // an axis, HD_LOCAL or HD_STREAM
};

struct Tensor {
    std::string name, dtype, role;
    std::vector<Dim> dims;
    double size; // no element is larger

    bool Floating() const
    {
        return dtype != "i32";
    }
    std::string Declare(const std::vector<std::string> &axes) const
    {
        std::string text = role + " %" + name + " : " + dtype + "[";

        for (size_t i = 0; i < dims.size(); i++) {
            text += (i > 0 ? ", " : "") + std::to_string(dims[i].extent);
            if (dims[i].mark == HD_STREAM)
                text += "@stream";
            else if (dims[i].mark >= 0)
                text += "@" + axes[static_cast<size_t>(dims[i].mark)];
        }
        return text + "]\n";
    }
};

bool Alike(const Dim &a, const Dim &b)
{
    return a.extent == b.extent && std::max(a.mark, -1) == std::max(b.mark, -1);
}

bool Alike(const Tensor &a, const Tensor &b)
{
    if (a.dtype != b.dtype || a.dims.size() != b.dims.size())
        return false;
    for (size_t i = 0; i < a.dims.size(); i++)
        if (!Alike(a.dims[i], b.dims[i]))
            return false;
    return true;
}

class Generator
{
  public:
    explicit Generator(unsigned seed) : random_(seed)
    {
        static const std::vector<std::vector<int64_t>> meshes = {
            {1}, {2}, {3}, {4}, {4}, {2, 2}, {2, 3}, {3, 2}};

        size_ = meshes[Pick(meshes.size())];
        axes_ = {"tp", "dp"};
        axes_.resize(size_.size());
        streams_ = Pick(4) > 0;
    }
    std::string Text()
    {
        for (size_t n = 1 + Pick(2); n > 0; n--)
            NewInput(Extents(1 + Pick(4)), Pick(3) == 0 ? "i32" : "f32");
        for (size_t n = 1 + Pick(streams_ ? 7 : 12); n > 0; n--)
            AddOp();
        std::string text =
            "tensor program random mesh tp=" + std::to_string(size_[0]);

        if (size_.size() > 1)
            text += ", dp=" + std::to_string(size_[1]);
        text += "\n";
        for (size_t i = 0; i < tensors_.size(); i++) {
            Tensor &t = tensors_[i];

            if (t.role == "temp" && (read_.count(i) == 0 || Pick(4) == 0))
                t.role = "out";
            text += t.Declare(axes_);
            if (Pick(6) == 0)
                text += "temp %unused" + std::to_string(i) + " : f32[3]\n";
        }
        return text + "{\n" + body_ + "}\n";
    }
    size_t Pick(size_t n)
    {
        return n > 0 ? random_() % n : 0;
    }

  private:
    std::mt19937 random_;
    std::vector<int64_t> size_;
    std::vector<std::string> axes_;
    std::vector<Tensor> tensors_;
    std::set<size_t> read_;
    bool streams_ = true;
    std::vector<size_t> gathered_; // and what was computed from them
    std::string body_;

    int64_t Extent()
    {
        return Pick(3) > 0 ? size_[Pick(size_.size())]
                           : static_cast<int64_t>(1 + Pick(6));
    }
    std::vector<Dim> Extents(size_t n)
    {
        std::vector<Dim> dims(n);

        for (Dim &d : dims)
            d = {Extent(), HD_LOCAL};
        Place(&dims, 0);
        return dims;
    }
    void Streams(std::vector<Dim> *dims)
    {
        for (Dim &d : *dims)
            if (d.mark < 0)
                d.mark = HD_LOCAL;
        if (!streams_ || Pick(4) == 0 || dims->empty())
            return;
        Dim &d = (*dims)[Pick(2) * Pick(dims->size())];
        if (d.mark < 0)
            d.mark = HD_STREAM;
    }
    // Any placement of the dimensions from `first` on.
    void Place(std::vector<Dim> *dims, size_t first)
    {
        std::set<int> taken;

        for (Dim &d : *dims)
            d.mark = HD_LOCAL;
        for (int axis = 0; axis < static_cast<int>(size_.size()); axis++)
            if (Pick(3) > 0)
                for (size_t at = first + Pick(2) * Pick(dims->size() + 1);
                     at < dims->size(); at++) {
                    Dim &d = (*dims)[at];
                    if (d.mark >= 0 ||
                        d.extent != size_[static_cast<size_t>(axis)])
                        continue;
                    d.mark = axis;
                    break;
                }
        Streams(dims);
    }
    size_t NewInput(const std::vector<Dim> &dims, const std::string &dtype)
    {
        tensors_.push_back(
            {"t" + std::to_string(tensors_.size()), dtype, "in", dims, 3});
        return tensors_.size() - 1;
    }
    // A tensor that is read; the rest become results.
    const Tensor &Read(size_t i)
    {
        read_.insert(i);
        return tensors_[i];
    }
    const Tensor &Result(const std::vector<Dim> &dims, const std::string &dtype,
                         double size, const std::string &role = "temp")
    {
        Tensor t = {"t" + std::to_string(tensors_.size()), dtype, role, dims,
                    size};

        if (!HasStream(t) || Pick(5) == 0)
            Streams(&t.dims);
        tensors_.push_back(t);
        return tensors_.back();
    }
    void Say(const std::string &result, const std::string &rest)
    {
        body_ += "    %" + result + " = " + rest + "\n";
    }
    size_t Like(size_t x)
    {
        std::vector<size_t> found;

        for (size_t i = 0; i < tensors_.size(); i++)
            if (Alike(tensors_[i], tensors_[x]))
                found.push_back(i);
        return Pick(3) == 0 ? NewInput(tensors_[x].dims, tensors_[x].dtype)
                            : found[Pick(found.size())];
    }
    void AddOp()
    {
        // Later tensors are taken more often, so that chains grow long.
        size_t x = std::max(Pick(tensors_.size()), Pick(tensors_.size()));

        if (!gathered_.empty() && Pick(3) > 0)
            x = gathered_[Pick(gathered_.size())];
        if (streams_ && Pick(4) == 0)
            return AddScatter();
        if (streams_ && Pick(gathered_.size() + 1) == 0)
            return AddGather();
        if (tensors_[x].size > 1e5)
            return;
        read_.insert(x);
        switch (Pick(12)) {
        case 0:
        case 1:
        case 2:
        case 3:
            return AddSet(x);
        case 4:
            return AddReduction(x);
        case 5:
            return AddSums(x);
        case 6:
            return AddBinary(x);
        case 7:
            return AddUnary(x);
        case 8:
            return AddTranspose(x);
        default:
            return AddMatmul(x);
        }
    }
    // What can be pipelined: a leading dimension goes from sharded to stream.
    void AddGather()
    {
        size_t axis = Pick(size_.size());
        std::vector<Dim> dims = Extents(1 + Pick(4));

        for (Dim &d : dims)
            d.mark = d.mark == static_cast<int>(axis) || d.mark == HD_STREAM
                         ? HD_LOCAL
                         : d.mark;
        size_t at = dims[0].extent == 1 && dims.size() > 1 && Pick(2);
        dims[at] = {size_[axis], static_cast<int>(axis)};
        size_t x = NewInput(dims, Pick(5) == 0 ? "i32" : "f32");
        dims[at].mark = HD_STREAM;
        gathered_.push_back(tensors_.size());
        read_.insert(x);
        Say(Result(dims, tensors_[x].dtype, 3).name, "set %" + Name(x));
    }
    const std::string &Name(size_t i) const
    {
        return tensors_[i].name;
    }
    static bool HasStream(const Tensor &t)
    {
        for (const Dim &d : t.dims)
            if (d.mark == HD_STREAM)
                return true;
        return false;
    }
    void AddSet(size_t x)
    {
        Tensor t = tensors_[x];

        if (Pick(3) == 0)
            for (Dim &d : t.dims)
                d.mark = HD_LOCAL;
        else
            Place(&t.dims, 0);
        if (Pick(5) == 0)
            t.dtype = t.dtype == "f32" ? "bf16" : "f32";
        Say(Result(t.dims, t.dtype, t.size).name, "set %" + t.name);
    }
    void AddReduction(size_t x)
    {
        Tensor t = tensors_[x];
        size_t d = Pick(t.dims.size());
        Dim lost = {1, HD_LOCAL};

        if (t.dims.empty())
            return;
        lost = t.dims[d];
        t.dims.erase(t.dims.begin() + static_cast<long>(d));
        if (lost.mark >= 0)
            Place(&t.dims, 0);
        Say(Result(t.dims, t.dtype, t.size * static_cast<double>(lost.extent))
                .name,
            (Pick(2) ? "sum %" : "max %") + t.name + " dim " +
                std::to_string(d));
    }
    // Partial results of a stream dimension, reduced to the ranks: of a tensor
    // that there is, or of an operation on a new one.
    void AddScatter()
    {
        for (size_t i = tensors_.size(); i-- > 0;)
            if (tensors_[i].role != "in" && Pick(2) && Scatter(i))
                return;
        int axis = static_cast<int>(Pick(size_.size()));
        int64_t n = size_[static_cast<size_t>(axis)];
        std::vector<Dim> dims = {{n, axis}, {n, HD_STREAM}};

        if (Pick(3) == 0)
            dims.insert(dims.begin() + 1, {Extent(), HD_LOCAL}); // a batch
        for (size_t more = 1 + Pick(2); more > 0; more--)
            dims.push_back({Extent(), HD_LOCAL});
        size_t x = NewInput(dims, Pick(5) == 0 ? "i32" : "f32");
        switch (Pick(5)) {
        case 0:
            AddSums(x);
            break;
        case 1:
            AddBinary(x);
            break;
        case 2:
            AddUnary(x);
            break;
        default:
            AddMatmul(x);
        }
        read_.insert(x);
        if (Pick(3) > 0)
            Scatter(tensors_.size() - 1);
    }
    // False if it holds no partial results.
    bool Scatter(size_t x)
    {
        static const char *const folds[] = {"sum %", "sum %", "max %", "min %"};
        Tensor t = tensors_[x];
        auto at = [&](auto &&is) {
            return std::find_if(t.dims.begin(), t.dims.end(), is);
        };
        auto stream = at([](const Dim &d) { return d.mark == HD_STREAM; });
        if (stream == t.dims.end() || t.size > 1e5)
            return false;
        auto over = at([&](const Dim &d) {
            return d.mark >= 0 && d.extent == stream->extent;
        });
        if (over == t.dims.end())
            return false;

        std::string dim = std::to_string(over - t.dims.begin());
        if (Pick(3) > 0)
            stream->mark = over->mark; // else every rank gets all of it
        double size = t.size * static_cast<double>(over->extent);
        t.dims.erase(over);
        if (HasStream(t))
            gathered_.push_back(tensors_.size());
        Say(Result(t.dims, t.dtype, size).name,
            folds[Pick(4)] + Read(x).name + " dim " + dim);
        return true;
    }
    void AddSums(size_t x)
    {
        Tensor t = tensors_[x];
        std::string text = "%" + t.name;
        double size = t.size;

        for (size_t n = 1 + Pick(3); n > 0; n--) {
            size_t y = Like(x);

            text += ", %" + Read(y).name;
            size += tensors_[y].size;
        }
        Say(Result(t.dims, t.dtype, size).name,
            (Pick(2) ? "sum " : "max ") + text);
    }
    void AddBinary(size_t x)
    {
        Tensor t = tensors_[x], u = t;
        size_t y;

        if (Pick(2) && !u.dims.empty()) {
            u.dims.erase(u.dims.begin(),
                         u.dims.begin() +
                             static_cast<long>(1 + Pick(u.dims.size())));
            y = NewInput(u.dims, u.dtype);
        } else {
            y = Like(x);
        }
        Say(Result(t.dims, t.dtype, (1 + t.size) * (1 + Read(y).size)).name,
            (Pick(2) ? "add %" : "mul %") + t.name + ", %" + tensors_[y].name);
    }
    void AddUnary(size_t x)
    {
        static const char *const ops[] = {"relu %", "gelu %", "silu %",
                                          "scale %", "copy %"};
        Tensor t = tensors_[x];
        size_t op = t.Floating() ? Pick(5) : 4;

        if (HasStream(t) && Pick(2))
            gathered_.push_back(tensors_.size());
        Say(Result(t.dims, t.dtype, t.size).name,
            ops[op] + t.name + (op == 3 ? " by 0.75" : ""));
    }
    void AddPermute(size_t x)
    {
        Tensor t = tensors_[x], in = t;
        std::vector<size_t> order(t.dims.size());
        std::string text;

        for (size_t d = 0; d < order.size(); d++) {
            size_t at = Pick(d + 1);

            order[d] = order[at];
            order[at] = d;
        }
        for (size_t d = 0; d < order.size(); d++) {
            t.dims[d] = in.dims[order[d]];
            text += (d > 0 ? ", " : "") + std::to_string(order[d]);
        }
        Say(Result(t.dims, t.dtype, t.size).name,
            "permute %" + t.name + " order (" + text + ")");
    }
    void AddTranspose(size_t x)
    {
        Tensor t = tensors_[x];
        size_t n = t.dims.size();
        size_t i = Pick(n), j = Pick(n);

        if (i == j)
            return;
        if (Pick(2)) {
            AddPermute(x);
            return;
        }
        std::swap(t.dims[i], t.dims[j]);
        Say(Result(t.dims, t.dtype, t.size).name,
            "transpose %" + t.name + " dim0 " + std::to_string(i) + " dim1 " +
                std::to_string(j));
    }
    Dim FreeDim(const std::vector<Dim> &taken)
    {
        Dim d = {Extent(), HD_LOCAL};
        int axis = static_cast<int>(Pick(size_.size()));

        for (const Dim &t : taken)
            if (t.mark == axis)
                return d;
        if (d.extent == size_[static_cast<size_t>(axis)] && Pick(2))
            d.mark = axis;
        return d;
    }
    void AddMatmul(size_t x)
    {
        Tensor a = tensors_[x];
        size_t n = a.dims.size(), batch = 0;
        bool crossed = Pick(5) == 0 && n <= 3;
        bool ta, tb = Pick(2);

        if (!a.Floating() || n < 2)
            return;
        if (!crossed)
            batch = Pick(n - 1);
        if (Pick(2))
            batch = 0;
        ta = n == 2 + (crossed ? 0 : batch) && Pick(3) == 0;
        Dim k = ta ? a.dims[n - 2] : a.dims[n - 1];
        if (k.mark >= 0)
            return;
        k.mark = HD_LOCAL;
        std::vector<Dim> rows(a.dims.begin(), a.dims.end() - 1);
        if (ta)
            rows.back() = a.dims[n - 1];
        std::vector<Dim> b, c = rows;
        if (crossed) {
            b.push_back(FreeDim(c));
            c.insert(c.begin(), b[0]);
        } else {
            b.assign(a.dims.begin(), a.dims.begin() + static_cast<long>(batch));
            if (batch > 0)
                b.resize(n - 2, {1, HD_LOCAL});
        }
        Dim columns = FreeDim(c);
        c.push_back(columns);
        b.push_back(tb ? columns : k);
        b.push_back(tb ? k : columns);
        EmitMatmul(a, b, c, ta, tb);
    }
    void EmitMatmul(const Tensor &a, const std::vector<Dim> &b,
                    const std::vector<Dim> &c, bool ta, bool tb)
    {
        std::string text = "matmul %" + a.name;
        size_t right = NewInput(b, a.dtype);
        double size = a.size * 40 + 4;
        bool accumulate = Pick(6) == 0;

        text +=
            ", %" + Read(right).name + (ta ? " ta" : "") + (tb ? " tb" : "");
        if (Pick(4) == 0)
            text += " scale 0.5";
        if (Pick(3) == 0)
            text +=
                " bias %" +
                tensors_[NewInput({c.back()}, Pick(2) ? "f32" : a.dtype)].name;
        if (Pick(3) == 0)
            text += " act gelu";
        if (Pick(4) == 0)
            text += " aux %" + Result(c, "f32", size, "out").name;
        if (accumulate)
            text += " accumulate";
        std::string out =
            Result(c, "f32", size, accumulate ? "inout" : "temp").name;
        if (text.find("aux %" + out) == std::string::npos)
            Say(out, text);
    }
};

// ---------------------------------------------------------------- ordering

using Clock = std::map<int, int64_t>;

void Join(Clock *to, const Clock &from)
{
    for (const auto &c : from)
        (*to)[c.first] = std::max((*to)[c.first], c.second);
}

struct Epoch {
    int fiber = 0;
    int64_t tick = 0;
    int64_t step = 0;

    bool Before(const Clock &clock) const
    {
        auto at = clock.find(fiber);

        return at != clock.end() && at->second >= tick;
    }
};

// Vector clocks over the streams of one rank. A fiber is a stream, or the part
// of a send that goes on after its step.
class Order
{
  public:
    explicit Order(const hd_module *module) : module_(module)
    {
    }
    // Empty, or what is not ordered.
    std::string Check(int64_t rank)
    {
        hd_steps steps;
        hd_diag *diag = hd_diag_create();
        hd_status status = hd_steps_collect(module_, rank, diag, &steps);
        std::string text = hd_diag_text(diag);

        hd_diag_destroy(diag);
        if (status != HD_OK)
            return text;
        for (int run = 0; run < 2 && said_.empty(); run++) {
            for (int64_t i = 0; i < steps.nsteps;) {
                int64_t n = 1;

                while (steps.step[i].group != 0 && i + n < steps.nsteps &&
                       steps.step[i + n].group == steps.step[i].group)
                    n++;
                Issue(steps.step + i, n);
                i += n;
            }
            RunBoundary();
        }
        hd_steps_free(&steps);
        return said_.empty() ? "" : "rank " + std::to_string(rank) + said_;
    }

  private:
    struct Cell {
        std::vector<Epoch> writes, reads;
    };
    const hd_module *module_;
    std::map<int, Clock> clock_; // by stream; -1 is the caller's
    std::map<std::pair<const hd_buffer *, int64_t>, Cell> cells_;
    std::map<int64_t, Clock> recorded_; // by step
    int next_fiber_ = 1000;
    std::string said_;

    void RunBoundary()
    {
        for (auto &c : cells_)
            for (auto *epochs : {&c.second.writes, &c.second.reads})
                for (const Epoch &e : *epochs)
                    if (!e.Before(clock_[-1]))
                        said_ = ": step " + std::to_string(e.step) + " on %" +
                                c.first.first->name + " is not joined";
    }
    void Issue(const hd_step *step, int64_t n)
    {
        Clock before = clock_[step->stream];
        Clock after = before;

        after[step->stream]++;
        for (int64_t i = 0; i < n; i++) {
            const hd_step &s = step[i];
            Clock now = before;
            Epoch epoch;

            epoch.step = s.index;
            if (hd_op_key(s.op, HD_KEY_DONE) != nullptr) {
                epoch.fiber = next_fiber_++;
                epoch.tick = 1;
                now[epoch.fiber] = 1;
                recorded_[s.index] = now;
            } else {
                epoch.fiber = s.stream;
                epoch.tick = after[s.stream];
            }
            Touch(s, epoch, before);
            Sync(s, &after);
        }
        clock_[step->stream] = after;
    }
    void Sync(const hd_step &s, Clock *after)
    {
        switch (s.op->code) {
        case HD_OP_RECORD:
            recorded_[s.index] = *after;
            break;
        case HD_OP_WAIT:
            for (int i = 0; i < s.op->nviews; i++)
                if (s.record[i].step >= 0)
                    Join(after, recorded_[s.record[i].step]);
            break;
        case HD_OP_FORK:
            for (int i = 0; i < module_->streams; i++)
                Join(&clock_[i], *after);
            break;
        case HD_OP_JOIN:
            for (int i = 0; i < module_->streams; i++)
                Join(after, clock_[i]);
            break;
        default:
            break;
        }
    }
    static bool IsOfRootAlone(const hd_step &s, int v)
    {
        return s.peer != s.rank &&
               (v == 0 ? s.op->code == HD_OP_REDUCE && s.op->noutputs == 1
                       : s.op->code == HD_OP_BROADCAST);
    }
    void Touch(const hd_step &s, const Epoch &epoch, const Clock &before)
    {
        for (int v = 0; v < s.op->nviews; v++) {
            int access = hd_op_access(s.op, v);

            if (s.span[v].buffer->type.dtype == HD_DTYPE_EVENT ||
                IsOfRootAlone(s, v))
                continue;
            Elements(s.span[v], 0, s.span[v].offset, s, epoch, before,
                     (access & HD_ACCESS_WRITE) != 0);
        }
    }
    void Elements(const hd_span &span, int dim, int64_t at, const hd_step &s,
                  const Epoch &epoch, const Clock &before, bool writes)
    {
        if (dim < span.ndims) {
            for (int64_t i = 0; i < span.extent[dim]; i++)
                Elements(span, dim + 1, at + i * span.stride[dim], s, epoch,
                         before, writes);
            return;
        }
        Cell &cell = cells_[{span.buffer, at}];
        Against(cell.writes, span, s, before);
        if (writes) {
            Against(cell.reads, span, s, before);
            cell.reads.clear();
            cell.writes = {epoch};
        } else {
            cell.reads.push_back(epoch);
        }
    }
    void Against(const std::vector<Epoch> &epochs, const hd_span &span,
                 const hd_step &s, const Clock &before)
    {
        for (const Epoch &e : epochs)
            if (!e.Before(before) && e.step != s.index && said_.empty())
                said_ = ": steps " + std::to_string(e.step) + " and " +
                        std::to_string(s.index) + " race on %" +
                        span.buffer->name;
    }
};

// --------------------------------------------------------------- execution

// The transfers of all ranks, each rank's started in issue order and each
// waiting for its partners. Empty, or who hangs.
class Progress
{
  public:
    explicit Progress(const hd_module *module) : module_(module)
    {
    }
    ~Progress()
    {
        for (hd_steps &s : ranks_)
            hd_steps_free(&s);
    }
    std::string Check()
    {
        ranks_.resize(static_cast<size_t>(module_->nranks));
        for (size_t r = 0; r < ranks_.size(); r++)
            if (hd_steps_collect(module_, static_cast<int64_t>(r), nullptr,
                                 &ranks_[r]) != HD_OK)
                return "does not walk";
        done_.resize(ranks_.size());
        for (size_t r = 0; r < ranks_.size(); r++)
            done_[r].resize(static_cast<size_t>(ranks_[r].nsteps));
        while (Sweep())
            continue;
        for (size_t r = 0; r < ranks_.size(); r++)
            for (size_t i = 0; i < done_[r].size(); i++)
                if (!done_[r][i])
                    return "rank " + std::to_string(r) + " hangs at step " +
                           std::to_string(i);
        return "";
    }

  private:
    const hd_module *module_;
    std::vector<hd_steps> ranks_;
    std::vector<std::vector<bool>> done_;

    // Every step before `i` that it must follow is done.
    bool Ready(size_t r, int64_t i) const
    {
        const hd_step &s = ranks_[r].step[i];
        bool all = s.op->code == HD_OP_JOIN;

        for (int64_t k = 0; k < i; k++) {
            const hd_step &t = ranks_[r].step[k];
            bool same =
                t.stream == s.stream || all || (t.op->code == HD_OP_FORK);

            for (int v = 0; s.record != nullptr && v < s.op->nviews; v++)
                same |= k == s.record[v].step;

            if (t.group != 0 && t.group == s.group)
                continue;
            if (same && !done_[r][static_cast<size_t>(k)])
                return false;
        }
        return true;
    }
    // Earlier transfers of the rank have started: they were ready, too.
    bool Started(size_t r, int64_t i) const
    {
        for (int64_t k = 0; k < i; k++)
            if (hd_op_is(ranks_[r].step[k].op, HD_UNIT_TRANSFER) &&
                !done_[r][static_cast<size_t>(k)] && !Ready(r, k))
                return false;
        return Ready(r, i);
    }
    bool Partner(size_t q, const hd_step &s) const
    {
        for (int64_t k = 0; k < ranks_[q].nsteps; k++) {
            const hd_step &t = ranks_[q].step[k];
            bool point = s.op->code == HD_OP_SEND || s.op->code == HD_OP_RECV;
            hd_opcode want = s.op->code == HD_OP_SEND   ? HD_OP_RECV
                             : s.op->code == HD_OP_RECV ? HD_OP_SEND
                                                        : s.op->code;

            if (t.op->code == want && t.seq == s.seq &&
                t.op->axis == s.op->axis && (!point || t.peer == s.rank))
                return done_[q][static_cast<size_t>(k)] || Started(q, k);
        }
        return false;
    }
    bool Complete(size_t r, int64_t i) const
    {
        const hd_step &s = ranks_[r].step[i];

        if (!hd_op_is(s.op, HD_UNIT_TRANSFER))
            return Ready(r, i);
        if (!Started(r, i))
            return false;
        if (s.op->code == HD_OP_SEND || s.op->code == HD_OP_RECV)
            return Partner(static_cast<size_t>(s.peer), s);
        for (int64_t c = 0; c < module_->axis[s.op->axis].size; c++)
            if (!Partner(static_cast<size_t>(
                             hd_mesh_peer(module_, s.rank, s.op->axis, c)),
                         s))
                return false;
        return true;
    }
    bool Sweep()
    {
        bool moved = false;

        for (size_t r = 0; r < ranks_.size(); r++)
            for (int64_t i = 0; i < ranks_[r].nsteps; i++)
                if (!done_[r][static_cast<size_t>(i)] && Complete(r, i)) {
                    done_[r][static_cast<size_t>(i)] = true;
                    moved = true;
                }
        return moved;
    }
};

std::vector<std::vector<char>> RandomData(const hd_module *module,
                                          unsigned seed)
{
    std::mt19937 random(seed);
    std::vector<std::vector<char>> data;

    for (size_t i = 0; i < module_info(module).narguments; i++) {
        hd_argument a = HD_EMPTY(hd_argument);
        std::vector<double> values;

        EXPECT_TRUE(hd_module_argument(module, i, &a));
        values.resize(a.elements);
        for (double &v : values)
            v = a.dtype == HD_DTYPE_I32
                    ? static_cast<double>(random() % 7) - 3
                    : static_cast<double>(random() % 2048) / 512 - 2;
        data.emplace_back(a.elements * hd_dtype_size(a.dtype));
        hd_dtype_store(a.dtype, values.data(), a.elements, data.back().data());
    }
    return data;
}

class Answer
{
  public:
    Answer(const hd_module *module, const std::vector<std::vector<char>> &data)
        : module_(module)
    {
        hd_diag *diag = hd_diag_create();
        std::vector<const void *> whole;

        for (size_t i = 0; i < data.size(); i++) {
            hd_argument a = HD_EMPTY(hd_argument);

            hd_module_argument(module, i, &a);
            whole.push_back(a.role == HD_ROLE_OUT ? nullptr : data[i].data());
        }
        EXPECT_EQ(hd_reference_create(module, whole.data(), diag, &reference_),
                  HD_OK)
            << hd_diag_text(diag);
        hd_diag_destroy(diag);
    }
    Answer(const Answer &) = delete;
    Answer &operator=(const Answer &) = delete;
    ~Answer()
    {
        hd_reference_destroy(reference_);
    }
    // Empty, or where the two differ.
    std::string Differs(const Answer &other) const
    {
        if (reference_ == nullptr || other.reference_ == nullptr)
            return "no reference";
        for (size_t i = 0; i < module_info(module_).narguments; i++)
            for (int rank = 0; rank < module_info(module_).ranks; rank++) {
                std::string said = DiffersIn(other, i, rank);

                if (!said.empty())
                    return said;
            }
        return "";
    }

  private:
    const hd_module *module_;
    hd_reference *reference_ = nullptr;

    std::string DiffersIn(const Answer &other, size_t i, int rank) const
    {
        hd_argument a = HD_EMPTY(hd_argument);

        hd_module_argument(module_, i, &a);
        if (a.role != HD_ROLE_OUT && a.role != HD_ROLE_INOUT)
            return "";
        std::vector<double> x(a.local_elements, NAN), y = x, bx = x, by = x;
        hd_reference_local(reference_, i, rank, x.data(), bx.data());
        hd_reference_local(other.reference_, i, rank, y.data(), by.data());
        for (size_t k = 0; k < x.size(); k++)
            if (!(std::fabs(x[k] - y[k]) <=
                  (a.dtype == HD_DTYPE_I32 ? 0 : bx[k] + by[k])))
                return std::string("%") + a.name + " element " +
                       std::to_string(k) + " on rank " + std::to_string(rank) +
                       ": " + std::to_string(x[k]) + " and " +
                       std::to_string(y[k]);
        return "";
    }
};

// Print -> parse -> print is a fixpoint after every pass.
void Reparse(void *context, const char *pass, const hd_module *module)
{
    std::string *said = static_cast<std::string *>(context);
    char *text = nullptr;

    ASSERT_EQ(hd_print(module, &text), HD_OK);
    std::string first = text;
    hd_free(text);
    Program again(first.substr(first.find('\n') + 1));
    if (again.Print() != first)
        *said =
            std::string(pass) + ":\n" + first + again.Said() + again.Print();
}

hd_lower_options RandomOptions(Generator *g)
{
    hd_lower_options o = RingDefaults();

    o.transfer = static_cast<hd_transfer>(g->Pick(5));
    o.protocol = static_cast<hd_protocol>(g->Pick(2));
    o.streams = static_cast<int>(1 + g->Pick(4));
    o.chunks = g->Pick(2) ? 1 : static_cast<int>(1 + g->Pick(3));
    o.copy_own = g->Pick(2);
    o.defer_sends = g->Pick(2);
    o.comm_stream = g->Pick(2);
    o.wire = static_cast<hd_wire_dtype>(g->Pick(2));
    o.transport = g->Pick(2) ? HD_TRANSPORT_NCCL : HD_TRANSPORT_COPY;
    o.launch = g->Pick(3) == 0;
    return o;
}

std::string OptionText(const hd_lower_options &o)
{
    return "transfer " + std::to_string(o.transfer) + " get " +
           std::to_string(o.protocol) + " streams " +
           std::to_string(o.streams) + " chunks " + std::to_string(o.chunks) +
           " copy_own " + std::to_string(o.copy_own) + " defer " +
           std::to_string(o.defer_sends) + " comm_stream " +
           std::to_string(o.comm_stream) + " wire " + std::to_string(o.wire) +
           " transport " + std::to_string(o.transport) + " launch " +
           std::to_string(o.launch);
}

// Lowers the text, and says what is wrong with the result. Chunks may be
// refused.
std::string Try(const std::string &text, const hd_lower_options &options,
                unsigned seed)
{
    Program tensor(text), host(text);
    std::string said;

    if (tensor.status != HD_OK)
        return "parse: " + tensor.Said();
    if (hd_lower(host.module, &options, Reparse, &said, host.diag) != HD_OK)
        return options.chunks > 1 &&
                       host.Said().find("error[HD050") != std::string::npos
                   ? ""
                   : "lower: " + host.Said();
    if (!said.empty())
        return said;
    hd_check_options how = hd_check_defaults();
    how.transport = options.transport;
    if (hd_check(host.module, &how, host.diag) != HD_OK)
        return "check: " + host.Said() + host.Print();
    auto data = RandomData(tensor.module, seed);
    Answer want(tensor.module, data), have(host.module, data);
    said = want.Differs(have);
    for (int64_t r = 0; r < host.module->nranks && said.empty(); r++)
        said = Order(host.module).Check(r);
    if (said.empty())
        said = Progress(host.module).Check();
    return said.empty() ? "" : said + "\n" + host.Print();
}

TEST(Lower, RandomProgramsKeepTheirAnswer)
{
    const char *many = std::getenv("HEDDLE_LOWER_COUNT");
    unsigned first = SeedFrom(1);
    unsigned count = many != nullptr ? static_cast<unsigned>(atoi(many)) : 200;

    for (unsigned seed = first; seed < first + count; seed++) {
        Generator g(seed);
        std::string text = g.Text();

        for (int i = 0; i < 8; i++) {
            hd_lower_options options = RandomOptions(&g);
            std::string said = Try(text, options, seed);

            ASSERT_EQ(said, "")
                << "seed " << seed << ", " << OptionText(options) << "\n"
                << text;
        }
    }
}

// ---------------------------------------------------------- single programs

const char *const kLinear =
    "tensor program linear mesh tp=4 in %a : f32[4@tp, 12, 8] "
    "in %w : f32[8, 8] out %c : f32[4@stream, 12, 8] "
    "temp %ag : f32[4@stream, 12, 8] { %ag = set %a %c = matmul %ag, %w tb }";

std::string Lowered(const std::string &text,
                    const hd_lower_options &options = RingDefaults())
{
    Program p(text);

    EXPECT_EQ(p.status, HD_OK) << p.Said();
    if (p.status != HD_OK ||
        hd_lower(p.module, &options, nullptr, nullptr, p.diag) != HD_OK)
        return p.Said();
    return p.Print();
}

int Count(const std::string &text, const std::string &what)
{
    int n = 0;

    for (size_t at = text.find(what); at != std::string::npos;
         at = text.find(what, at + 1))
        n++;
    return n;
}

TEST(Lower, TheOwnShardIsComputedOnInPlace)
{
    hd_lower_options options = RingDefaults();

    EXPECT_EQ(Count(Lowered(kLinear), " copy "), 0);
    EXPECT_EQ(Count(Lowered(kLinear), "matmul %a[tp], %w"), 1);
    options.copy_own = true;
    EXPECT_EQ(Count(Lowered(kLinear, options), " copy "), 1);
}

const char *const kPartial =
    "tensor program t mesh tp=5 in %a : bf16[5@tp, 5, 6, 8] "
    "in %w : bf16[5@tp, 1, 8, 4] temp %p : bf16[5@tp, 5@stream, 6, 4] "
    "out %c : bf16[5@tp, 6, 4] { %p = matmul %a, %w %c = sum %p dim 0 }";

// What no product adds: the partial results are exact.
const char *const kTransposed =
    "tensor program t mesh tp=5 in %a : bf16[5@tp, 5, 4, 6] "
    "in %b : bf16[5] temp %p : bf16[5@tp, 5@stream, 6, 4] "
    "out %c : bf16[5@tp, 6, 4] { %p = transpose %a %c = sum %p dim 0 }";

const char *const kPartialOfABatch =
    "tensor program t mesh tp=5 in %a : bf16[5@tp, 2, 5, 3, 8] "
    "in %w : bf16[5@tp, 1, 1, 8, 4] temp %p : bf16[5@tp, 2, 5@stream, 3, 4] "
    "out %c : bf16[2, 5@tp, 3, 4] { %p = matmul %a, %w %c = sum %p dim 0 }";

void ExpectSendsOf(void *context, hd_op *op)
{
    if (op->code == HD_OP_SEND || op->code == HD_OP_RECV) {
        EXPECT_EQ(op->view[0].buffer->type.dtype,
                  *static_cast<hd_dtype *>(context));
    }
}

// Of all ranks, each value's.
std::vector<double> BoundsOfRing(const char *text, hd_wire_dtype wire,
                                 hd_dtype sent, std::vector<double> *values)
{
    hd_lower_options options = RingDefaults();
    Program p(text);
    auto data = RandomData(p.module, Seed());
    std::vector<const void *> whole;
    std::vector<double> bounds(5 * 24);
    hd_reference *reference = nullptr;

    values->resize(bounds.size());
    for (const auto &bytes : data)
        whole.push_back(bytes.data());
    options.wire = wire;
    EXPECT_EQ(hd_lower(p.module, &options, nullptr, nullptr, p.diag), HD_OK)
        << p.Said();
    EXPECT_EQ(p.Said(), "");
    hd_block_each(&p.module->body, ExpectSendsOf, &sent);
    EXPECT_EQ(hd_check(p.module, nullptr, p.diag), HD_OK) << p.Said();
    EXPECT_EQ(hd_reference_create(p.module, whole.data(), p.diag, &reference),
              HD_OK)
        << p.Said();
    for (int r = 0; r < 5; r++)
        hd_reference_local(reference, 2, r, values->data() + r * 24,
                           bounds.data() + r * 24);
    hd_reference_destroy(reference);
    return bounds;
}

// Half a step of bf16 is at most 2^-8 of a value. In f32 a value is off by at
// most 6 sqrt(40) units of 2^-24 of what 40 products of at most 4 add up to,
// and by one more a rank.
TEST(Lower, ARingOverAnF32WireRoundsToTheResultOnce)
{
    const double fp32 = (6 * std::sqrt(40.0) + 5) * 0x1p-24 * 40 * 4;

    for (const char *text : {kPartial, kPartialOfABatch, kTransposed}) {
        std::vector<double> narrow, wide;
        auto narrow_bounds =
            BoundsOfRing(text, HD_WIRE_RESULT, HD_DTYPE_BF16, &narrow);
        auto wide_bounds = BoundsOfRing(text, HD_WIRE_F32, HD_DTYPE_F32, &wide);

        for (size_t i = 0; i < wide.size(); i++) {
            EXPECT_NEAR(wide[i], narrow[i], narrow_bounds[i] + wide_bounds[i]);
            EXPECT_LE(wide_bounds[i],
                      (std::abs(wide[i]) + fp32) * 0x1p-8 + fp32 + 0x1p-130)
                << i;
            EXPECT_GT(narrow_bounds[i], wide_bounds[i]);
        }
    }
}

const char *const kBatch =
    "tensor program t mesh tp=3 in %a : f32[3@tp, 4, 3, 6, 8] "
    "in %w : f32[3@tp, 1, 1, 8, 5] in %r : f32[4, 3, 6, 5] "
    "temp %p : f32[3@tp, 4, 3@stream, 6, 5] temp %s : f32[4, 3@stream, 6, 5] "
    "out %c : f32[4, 3@stream, 6, 5] "
    "{ %p = matmul %a, %w %s = sum %p dim 0 %c = add %s, %r }";

// What is summed is moved as it lies, packed, and read from there.
TEST(Lower, ASumBehindABatchForAllRanksHasEveryPipeline)
{
    hd_lower_options options = RingDefaults();
    std::string text = Lowered(kBatch, options);

    EXPECT_EQ(Count(text, "all_reduce"), 0) << text;
    EXPECT_EQ(Count(text, " get\n"), 4) << text;
    EXPECT_EQ(Count(text, " copy "), 0) << text;
    options.transfer = HD_TRANSFER_DIRECT;
    text = Lowered(kBatch, options);
    EXPECT_EQ(Count(text, "all_reduce"), 0) << text;
    EXPECT_EQ(Count(text, " copy "), 0) << text;
    options.transfer = HD_TRANSFER_PIPELINED;
    text = Lowered(kBatch, options);
    EXPECT_EQ(Count(text, "[j] = all_reduce "), 1) << text;
    EXPECT_EQ(Count(text, " copy "), 0) << text;
    options.transfer = HD_TRANSFER_BULK;
    text = Lowered(kBatch, options);
    EXPECT_EQ(Count(text, "%s = all_reduce "), 1) << text;
}

TEST(Lower, AGatheredBufferThatIsNeededWholeGetsTheOwnShard)
{
    std::string out = kLinear;
    std::string later =
        "tensor program linear mesh tp=4 in %a : f32[4@tp, 12, 8] "
        "in %w : f32[8, 8] out %c : f32[4@stream, 12, 8] out %s : f32[12, 8] "
        "temp %ag : f32[4@stream, 12, 8] "
        "{ %ag = set %a %c = matmul %ag, %w tb %s = sum %ag dim 0 }";

    out.replace(out.find("temp %ag"), 4, "out");
    EXPECT_EQ(Count(Lowered(out), "%ag[tp] = copy %a[tp]"), 1) << Lowered(out);
    EXPECT_EQ(Count(Lowered(later), "%ag[tp] = copy %a[tp]"), 1);
}

TEST(Lower, OnlyKeysThatNothingElseNeedsArriveInSlots)
{
    const std::string head =
        "tensor program t mesh tp=5 in %q : f32[5@tp, 2, 3, 4] "
        "in %k : f32[5@tp, 1, 3, 4] out %o : f32[5@tp, 2, 3, 4] "
        "out %l : f32[5@tp, 2, 3] ";
    const std::string attends = "{ %g = set %k %o, %l = attention %q, %g, %g "
                                "blocks ";
    const std::string temp = "temp %g : f32[5@stream, 1, 3, 4] ";
    hd_lower_options options = RingDefaults();
    std::string text;

    options.transfer = HD_TRANSFER_DIRECT;
    text = Lowered(head + temp + attends + "}", options);
    EXPECT_EQ(Count(text, "temp %g_in : f32[2, 1, 3, 4] shared"), 1) << text;
    EXPECT_EQ(Count(text, "%g[") + Count(text, "%g "), 0) << text;
    // A result, or read again.
    text = Lowered(head + "out %g : f32[5@stream, 1, 3, 4] " + attends + "}",
                   options);
    EXPECT_EQ(Count(text, "%g_in"), 0) << text;
    text = Lowered(head + temp + "out %s : f32[1, 3, 4] " + attends +
                       "%s = sum %g dim 0 }",
                   options);
    EXPECT_EQ(Count(text, "%g_in"), 0) << text;
    // What computes index by index besides reads the slot, too.
    text = Lowered(head + temp + "out %r : f32[5@stream, 1, 3, 4] " + attends +
                       "%r = relu %g }",
                   options);
    EXPECT_EQ(Count(text, "%r[i] = relu %g_in[j mod 2]"), 1) << text;
    // A text has streams already.
    options.until = HD_STAGE_STREAM;
    text = Lowered(head + temp + attends + "}", options);
    options.until = HD_STAGE_HOST;
    options.streams = 3;
    text = Lowered(text.substr(text.find('\n') + 1), options);
    EXPECT_EQ(Count(text, "temp %g_in : f32[2, 1, 3, 4] shared"), 1) << text;
    options.transfer = HD_TRANSFER_RING;
    text = Lowered(head + temp + attends + "}", options);
    EXPECT_EQ(Count(text, "%g_in"), 0) << text;
    options.transfer = HD_TRANSFER_DIRECT;
    EXPECT_EQ(Count(Lowered(kLinear, options), "%ag_in"), 0);
}

// On one stream, where all is added up, no receive would begin before the
// attention ahead of it has ended.
TEST(Lower, DeferredSendsLeaveReceivesBesideWhatIsAddedUp)
{
    hd_lower_options options = RingDefaults();

    options.transfer = HD_TRANSFER_DIRECT;
    options.comm_stream = options.defer_sends = true;
    std::string text =
        Lowered("tensor program t mesh tp=5 in %q : f32[5@tp, 2, 3, 4] "
                "in %k : f32[5@tp, 1, 3, 4] out %o : f32[5@tp, 2, 3, 4] "
                "out %l : f32[5@tp, 2, 3] temp %g : f32[5@stream, 1, 3, 4] "
                "{ %g = set %k %o, %l = attention %q, %g, %g blocks }",
                options);

    EXPECT_LT(text.find("on stream 2"), text.find("= recv from")) << text;
    EXPECT_LT(text.find("= recv from"), text.find("on stream 0")) << text;
    // A product of each shard has nothing to wait for but its own.
    text = Lowered(kLinear, options);
    EXPECT_LT(text.find("on stream j mod 2"), text.find("= recv from")) << text;
}

TEST(Lower, ARingNeedsNoForkAndOneEventAnIteration)
{
    std::string text = Lowered(kLinear);

    EXPECT_EQ(Count(text, "fork"), 0) << text;
    EXPECT_EQ(Count(text, "join"), 1);
    EXPECT_EQ(Count(text, "event[4]"), 1);
    EXPECT_EQ(Count(text, "= record"), 2); // the first, and one in the loop
}

TEST(Lower, OneStreamNeedsNoEvents)
{
    for (int transfer = 0; transfer <= HD_TRANSFER_FUSED; transfer++) {
        hd_lower_options options = RingDefaults();

        options.transfer = static_cast<hd_transfer>(transfer);
        options.streams = 1;
        EXPECT_EQ(Count(Lowered(kLinear, options), "event["), 0);
    }
}

TEST(Lower, FusesWhatReshardHasLeftInATextToo)
{
    hd_lower_options half = RingDefaults(), rest = half;

    half.until = HD_STAGE_RESHARD;
    rest.transfer = HD_TRANSFER_FUSED;
    std::string text = Lowered(kLinear, half);
    std::string fused = Lowered(text.substr(text.find('\n') + 1), rest);

    EXPECT_EQ(Count(text, "all_gather "), 1) << text;
    EXPECT_EQ(fused, Lowered(kLinear, rest));
    EXPECT_EQ(Count(fused, "launch {"), 1) << fused;
}

TEST(Lower, ChunksThatDoNotDivideAreRefusedByNumber)
{
    hd_lower_options options = RingDefaults();

    options.chunks = 5;
    std::string said = Lowered(kLinear, options);
    EXPECT_NE(said.find("HD0501"), std::string::npos) << said;
    EXPECT_NE(said.find("5 chunks do not divide"), std::string::npos) << said;
    EXPECT_NE(said.find("which is 12"), std::string::npos) << said;
}

TEST(Lower, GoesOnFromTheTextOfAnyStage)
{
    for (int stage = HD_STAGE_RESHARD; stage < HD_STAGE_HOST; stage++) {
        hd_lower_options options = RingDefaults();

        options.until = static_cast<hd_stage>(stage);
        std::string half = Lowered(kLinear, options);
        EXPECT_EQ(Lowered(half.substr(half.find('\n') + 1)), Lowered(kLinear))
            << half;
    }
}

TEST(Lower, ACompleteHostProgramIsLeftAlone)
{
    hd_lower_options options = RingDefaults();
    std::string text = Lowered(kLinear);

    options.transfer = HD_TRANSFER_BULK;
    options.streams = 3;
    EXPECT_EQ(Lowered(text.substr(text.find('\n') + 1), options), text);
}

TEST(Lower, GathersOnTwoAxesAreTwoLoops)
{
    std::string text =
        Lowered("tensor program two mesh tp=2, dp=2 in %a : f32[2@tp, 4, 3] "
                "in %b : f32[2@dp, 4, 3] out %c : f32[2@stream, 4, 3] "
                "out %d : f32[2@stream, 4, 3] temp %ga : f32[2@stream, 4, 3] "
                "temp %gb : f32[2@stream, 4, 3] { %ga = set %a %c = relu %ga "
                "%gb = set %b %d = relu %gb }");

    EXPECT_EQ(Count(text, "for j"), 2) << text;
    EXPECT_EQ(Count(text, "send@tp"), 2);
    EXPECT_EQ(Count(text, "send@dp"), 2);
}

// Lowers a program of one rank from after the transfer pass on.
std::string Ordered(const std::string &text, std::string *lowered)
{
    Program p(text);
    hd_lower_options options = RingDefaults();

    if (p.status != HD_OK ||
        hd_lower(p.module, &options, nullptr, nullptr, p.diag) != HD_OK)
        return p.Said();
    *lowered = p.Print();
    return Order(p.module).Check(0);
}

TEST(Lower, AGatherPassesLoopsThatStandBeforeItsReader)
{
    std::string text = Lowered(
        "tensor program t mesh tp=4 in %a : f32[4@tp, 12, 8] "
        "in %w : f32[8, 8] in %b : f32[4@tp, 4, 6, 8] out %c : f32[4@tp, 6, 8] "
        "temp %p : f32[4@tp, 4@stream, 6, 8] temp %ag : f32[4@stream, 12, 8] "
        "out %d : f32[4@stream, 12, 8] in %e : f32[3, 8] "
        "out %f : f32[3@stream, 8] { %ag = set %a %p = matmul %b, %w "
        "%c = sum %p dim 0 %f = relu %e %d = matmul %ag, %w }");

    EXPECT_EQ(Count(text, "all_gather"), 0) << text;
    EXPECT_EQ(Count(text, " for "), 3) << text;
    EXPECT_LT(text.find("= recv"), text.find("matmul %b")) << text;
    text = Lowered("tensor program t mesh tp=4 in %a : f32[4@tp, 12, 8] "
                   "in %w : f32[8, 8] temp %ag : f32[4@stream, 12, 8] "
                   "temp %v : f32[8@stream, 8] out %d : f32[4@stream, 12, 8] "
                   "{ %ag = set %a %v = relu %w %d = matmul %ag, %v }");
    EXPECT_LT(text.find("all_gather"), text.find("relu")) << text;
}

TEST(Lower, ConflictsAtSeveralDistancesGetOneStream)
{
    std::string text;

    EXPECT_EQ(Ordered("host program v after transfer streams 3 "
                      "in %a : f32[6, 4] out %c : f32[6, 4] temp %t : f32[4] "
                      "{ for j in 0..6 { on stream j mod 3 "
                      "{ %t = copy %a[j] %c[j] = copy %t } } }",
                      &text),
              "");
    EXPECT_EQ(Count(text, "on stream 0 {"), 1) << text;
}

TEST(Lower, TheRecordFollowsEveryProducer)
{
    std::string text;

    EXPECT_EQ(
        Ordered("host program v after transfer streams 3 "
                "in %a : f32[6, 4] out %c : f32[6, 4] temp %x : f32[7, 4] "
                "temp %y : f32[7, 4] { %x[0] = copy %a[0] %y[0] = copy %a[1] "
                "for j in 0..6 { on stream j mod 3 { %c[j] = add %x[j], %y[j] "
                "%y[j + 1] = copy %a[j] %x[j + 1] = copy %a[j] } } }",
                &text),
        "")
        << text;
    EXPECT_EQ(Count(text, "fork"), 0) << text;
    EXPECT_EQ(Count(text, "wait"), 1);
}

// Statements in any order, at indices that conflict as they like.
std::string RandomIteration(std::mt19937 *random)
{
    static const char *const names[] = {"%x", "%y", "%z"};
    static const char *const indices[] = {"[j]", "[j + 1]", "[7 - j]", "[8]"};
    std::string text;

    for (unsigned n = 2 + (*random)() % 4; n > 0; n--) {
        unsigned to = (*random)() % 3, from = (to + 1 + (*random)() % 2) % 3;
        std::string out = names[to] + std::string(indices[(*random)() % 4]);
        std::string in = names[from] + std::string(indices[(*random)() % 4]);

        std::string computed = out + " = relu " + in + " ";
        std::string moved = "group { send " + in + " to (tp + 1) mod 2 " + out +
                            " = recv from (tp + 1) mod 2 } ";

        // Now and then some iterations do the one and the rest the other.
        switch ((*random)() % 8) {
        case 0:
            text += "if j < " + std::to_string(1 + (*random)() % 3) + " { " +
                    moved + "} else { " + computed + "} ";
            break;
        case 1:
            text += "if " + std::to_string((*random)() % 4) + " <= j { " +
                    ((*random)() % 2 ? moved : computed) + "} ";
            break;
        default:
            text += (*random)() % 2 ? computed : moved;
        }
    }
    return text;
}

// What a reduce leaves is its root's alone, so that iterations with other roots
// do not wait for each other.
TEST(Lower, ReductionsToEachRankKeepTheirStreams)
{
    hd_lower_options options = RingDefaults();

    options.transfer = HD_TRANSFER_BROADCAST;
    std::string text = Lowered(
        "tensor program t mesh tp=4 in %a : f32[4@tp, 4, 6, 8] "
        "in %w : f32[4@tp, 1, 8, 5] temp %p : f32[4@tp, 4@stream, 6, 5] "
        "out %c : f32[4@tp, 6, 5] { %p = matmul %a, %w %c = sum %p dim 0 }",
        options);
    EXPECT_EQ(Count(text, "on stream j mod 2"), 1) << text;
    EXPECT_EQ(Count(text, "wait"), 0) << text;
}

// `have` is correct, and on random data does what `want` does.
void CheckSameAnswer(Program *want, Program *have, unsigned seed)
{
    ASSERT_EQ(hd_check(have->module, nullptr, have->diag), HD_OK)
        << "seed " << seed << "\n"
        << have->Said() << have->Print();
    auto data = RandomData(want->module, seed);
    ASSERT_EQ(Answer(want->module, data).Differs(Answer(have->module, data)),
              "")
        << "seed " << seed << "\n"
        << have->Print();
}

// A stream for transfers is given to loops of a text wherever that changes no
// answer, and only there.
TEST(Lower, RandomLoopsKeepTheirAnswer)
{
    const std::string args = " inout %x : f32[9, 4] shared inout %y : f32[9, 4]"
                             " shared inout %z : f32[9, 4] shared { ";
    hd_lower_options options = RingDefaults();
    unsigned first = SeedFrom(1);
    int split = 0, made = 0;

    options.comm_stream = true;
    for (unsigned seed = first; seed < first + 400; seed++) {
        std::mt19937 random(seed);
        std::string iteration = RandomIteration(&random) + "} } ";
        Program want("host program t mesh tp=2 streams 1" + args +
                     "fork for j in 0..4 { on stream 0 { " + iteration +
                     "join }");
        Program have("host program t after transfer mesh tp=2 streams 3" +
                     args + "for j in 0..4 { on stream j mod 2 { " + iteration +
                     "}");

        ASSERT_EQ(want.status, HD_OK) << want.Said();
        ASSERT_EQ(have.status, HD_OK) << have.Said();
        ASSERT_EQ(hd_lower(have.module, &options, nullptr, nullptr, have.diag),
                  HD_OK);
        split += have.Print().find("on stream 2 {") != std::string::npos;
        made += have.Print().find("wait %made") != std::string::npos;
        if (hd_check(want.module, nullptr, want.diag) != HD_OK)
            continue;
        ASSERT_NO_FATAL_FAILURE(CheckSameAnswer(&want, &have, seed));
    }
    EXPECT_GT(split, 10);
    EXPECT_GT(made, 5);
}

// Statements of a body on buffers that conflict as they like: products,
// collectives, and loops on streams, which `join` ends where that is given.
std::string RandomBody(std::mt19937 *random, const std::string &stream,
                       const std::string &fork, const std::string &join)
{
    static const char *const names[] = {"%u", "%v", "%x", "%y", "%z"};
    std::string text;

    for (unsigned n = 3 + (*random)() % 6; n > 0; n--) {
        unsigned to = (*random)() % 5, from = (to + 1 + (*random)() % 4) % 5;
        std::string out = names[to], in = names[from];

        switch ((*random)() % 6) {
        case 0:
        case 1:
            text += out + " = all_reduce " + in + " ";
            break;
        case 2:
            text += fork + "for j in 0..4 { on stream " + stream + " { " + out +
                    "[j] = all_reduce " + in + "[j] } } " + join;
            break;
        default:
            text += out + " = relu " + in + " ";
        }
    }
    return text;
}

Program BodyProgram(unsigned seed, bool lowered)
{
    std::mt19937 random(seed);
    std::string args;

    for (const char *name : {"%u", "%v", "%x", "%y", "%z"})
        args += std::string("inout ") + name + " : f32[4, 3] shared ";
    return Program(
        lowered ? "host program t after transfer mesh tp=2 streams 3 " + args +
                      "{ " + RandomBody(&random, "j mod 2", "", "") + "}"
                : "host program t mesh tp=2 streams 1 " + args + "{ " +
                      RandomBody(&random, "0", "fork ", "join ") + "}");
}

// Whatever of a body is computed beside loops and collectives, no answer
// changes.
TEST(Lower, RandomBodiesKeepTheirAnswer)
{
    hd_lower_options options = RingDefaults();
    unsigned first = SeedFrom(1);
    int beside = 0, passed = 0;

    for (unsigned seed = first; seed < first + 400; seed++) {
        Program want = BodyProgram(seed, false), have = BodyProgram(seed, true);

        options.comm_stream = seed % 4 != 0;
        ASSERT_EQ(want.status, HD_OK) << want.Said();
        ASSERT_EQ(have.status, HD_OK) << have.Said();
        ASSERT_EQ(hd_check(want.module, nullptr, want.diag), HD_OK)
            << want.Said();
        ASSERT_EQ(hd_lower(have.module, &options, nullptr, nullptr, have.diag),
                  HD_OK);
        beside += have.Print().find("%hop[0] = record") != std::string::npos;
        passed += have.Print().find("}\n    %") != std::string::npos;
        ASSERT_NO_FATAL_FAILURE(CheckSameAnswer(&want, &have, seed));
    }
    EXPECT_GT(beside, 50);
    EXPECT_GT(passed, 50);
}

// The text without its line number `line`, if that orders something.
std::string WithoutOrder(const std::string &text, int line)
{
    std::istringstream lines(text);
    std::string rest, one;
    bool found = false;

    for (int i = 0; std::getline(lines, one); i++) {
        bool orders = one.find(" wait %") != std::string::npos ||
                      one.find("= record") != std::string::npos ||
                      one.find(" join") != std::string::npos ||
                      one.find(" fork") != std::string::npos;

        found |= i == line && orders;
        if (i != line || !orders)
            rest += one + "\n";
    }
    return found ? rest : "";
}

TEST(Lower, EachEventBesideACollectiveIsNeeded)
{
    const char *const text =
        "tensor program t mesh tp=4 in %x : f32[size tp @tp, 4, 8] "
        "out %xg : f32[size tp, 4, 8] in %g : f32[size tp @tp, size tp, 4, 6] "
        "in %w : f32[size tp @tp, 1, 6, 8] "
        "temp %p : f32[size tp @tp, size tp, 4, 8] "
        "out %gx : f32[size tp @tp, 4, 8] in %a : f32[16, 8] "
        "in %b : f32[16, 6] inout %gw : f32[8, 6] out %y : f32[size tp, 4, 8] "
        "{ %xg = set %x %p = matmul %g, %w %gx = sum %p dim 0 "
        "%gw = matmul %a, %b ta accumulate %y = relu %xg }";
    hd_lower_options options = RingDefaults();
    int removed = 0;

    options.transfer = HD_TRANSFER_BULK;
    options.comm_stream = true;
    std::string whole = Lowered(text, options);
    ASSERT_EQ(hd_check(Program(whole.substr(9)).module, nullptr, nullptr),
              HD_OK)
        << whole;
    for (int line = 0; line < Count(whole, "\n"); line++) {
        std::string less = WithoutOrder(whole, line);

        if (less.empty())
            continue;
        Program broken(less.substr(9));
        EXPECT_TRUE(broken.status != HD_OK ||
                    hd_check(broken.module, nullptr, broken.diag) != HD_OK)
            << less;
        removed++;
    }
    EXPECT_EQ(removed, 8) << whole;
}

// Gathers that feed activations, `ops` in a row; returns the seconds of this
// thread that lowering takes.
double SecondsToLower(int ops)
{
    std::string decls = "in %t0 : f32[4@tp, 2, 3] ", body;
    hd_lower_options options = RingDefaults();
    timespec start, end;

    for (int i = 1; i <= ops; i++) {
        std::string name = "%t" + std::to_string(i);
        std::string from = "%t" + std::to_string(i - 1);
        bool is_set = i % 4 < 2;

        decls += (i == ops ? "out " : "temp ") + name + " : f32[4@" +
                 (i % 4 == 0 ? "tp" : "stream") + ", 2, 3] ";
        body += name + " = " + (is_set ? "set " : "relu ") + from + " ";
    }
    Program p("tensor program long mesh tp=4 " + decls + "{ " + body + "}");
    EXPECT_EQ(p.status, HD_OK) << p.Said();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    EXPECT_EQ(hd_lower(p.module, &options, nullptr, nullptr, p.diag), HD_OK);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    EXPECT_EQ(Count(p.Print(), "for j"), ops / 4);
    return double(end.tv_sec - start.tv_sec) +
           double(end.tv_nsec - start.tv_nsec) * 1e-9;
}

// Eight times the ops take some eight times as long; where each looked at all
// the others they would take 64 times as long.
TEST(Lower, AThousandOpsLowerInTime)
{
    double few = INFINITY, many = INFINITY;

    for (int i = 0; i < 3; i++) {
        few = std::min(few, SecondsToLower(128));
        many = std::min(many, SecondsToLower(1024));
    }
    EXPECT_LT(many, 24 * few) << few << " s for 128, " << many << " s for 1024";
}

TEST(Lower, TemporariesOfTheCallersStreamShareBytes)
{
    std::string text = "tensor program chain in %x : f32[8] "
                       "temp %a : f32[8] temp %b : f32[8] temp %c : f32[4, 2] "
                       "temp %d : f32[8] out %y : f32[8] { %a = relu %x "
                       "%b = gelu %a %d = relu %b %y = add %d, %b }";
    std::string lowered = Lowered(text);

    // %b begins while %a is read, and %d when %a is dead.
    EXPECT_EQ(Count(lowered, "of %a"), 1) << lowered;
    EXPECT_EQ(Count(lowered, "%d : f32[8] of %a"), 1) << lowered;
    EXPECT_EQ(Count(lowered, "of %b"), 0);
    EXPECT_EQ(Count(lowered, "%c"), 0);
    EXPECT_EQ(Try(text, RingDefaults(), 1), "");
}

} // namespace
