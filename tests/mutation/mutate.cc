// See mutate.h.
#include "tests/mutation/mutate.h"

#include <functional>
#include <vector>

#include "tests/model/launched.h"

namespace
{

struct Place {
    hd_block *block;
    hd_stmt *before, *stmt;
};

class Mutator
{
  public:
    Mutator(hd_module *module, std::mt19937 &random)
        : module_(module), random_(random)
    {
        List(&module->body);
    }
    std::string Run()
    {
        switch (Pick(33)) {
        case 0:
        case 1:
            return Drop();
        case 2:
            return Duplicate();
        case 3:
        case 4:
            return Move();
        case 5:
            return Retarget();
        case 6:
        case 7:
            return Index();
        case 8:
            return Stream();
        case 9:
            return Ungroup();
        case 10:
            return Branch();
        case 11:
            return Bounds();
        case 12:
            return Lifetime();
        case 13:
            return Undefer();
        case 14:
            return SwapTransfers();
        case 15:
        case 16:
            return Lifetime();
        case 17:
        case 18:
            return ToAnEnd();
        case 19:
            return Defer();
        case 20:
            return Mark();
        case 21:
        case 22:
            return Rename();
        case 23:
        case 24:
            return Lists();
        case 25:
        case 26:
        case 27:
            return Range();
        case 28:
        case 29:
        case 30:
            return Launch();
        default:
            return Group();
        }
    }

  private:
    hd_module *module_;
    std::mt19937 &random_;
    std::vector<Place> places_;

    size_t Pick(size_t n)
    {
        return n > 0 ? random_() % n : 0;
    }
    void List(hd_block *block)
    {
        hd_stmt *before = nullptr;

        for (hd_stmt *s = block->first; s != nullptr; before = s, s = s->next) {
            places_.push_back({block, before, s});
            List(&s->body);
            List(&s->otherwise);
        }
    }
    std::vector<Place> Such(const std::function<bool(const hd_stmt *)> &is)
    {
        std::vector<Place> found;

        for (const Place &p : places_)
            if (is(p.stmt))
                found.push_back(p);
        return found;
    }
    static bool IsOp(const hd_stmt *s)
    {
        return s->kind == HD_STMT_OP;
    }
    // Orders something: what the checker is about.
    static bool Orders(const hd_stmt *s)
    {
        return IsOp(s) && !hd_op_is(s->op, HD_UNIT_COMPUTE);
    }
    static std::string Word(const hd_stmt *s)
    {
        static const char *const kinds[] = {"op", "let",   "for",   "if",
                                            "on", "group", "launch"};

        return IsOp(s) ? hd_op_info_get(s->op->code)->text : kinds[s->kind];
    }

    // ------------------------------------------------------- statements

    std::string Drop()
    {
        auto found = Such(Orders);

        if (found.empty())
            return "";
        Place p = found[Pick(found.size())];
        hd_block_remove(p.block, p.before, p.stmt);
        return "drop " + Word(p.stmt);
    }
    hd_stmt *Copy(const hd_stmt *s)
    {
        hd_stmt *copy = hd_stmt_new(module_, HD_STMT_OP, s->loc);

        copy->op = s->op;
        return copy;
    }
    std::string Duplicate()
    {
        auto found = Such(Orders);

        if (found.empty())
            return "";
        Place p = found[Pick(found.size())];
        hd_block_insert(p.block, p.stmt, Copy(p.stmt));
        return "duplicate " + Word(p.stmt);
    }
    // An event of a list is forgotten, or all events of two records or waits
    // that follow each other go into one.
    std::string Lists()
    {
        auto found = Such([](const hd_stmt *s) {
            if (!IsOp(s) ||
                (s->op->code != HD_OP_WAIT && s->op->code != HD_OP_RECORD))
                return false;
            return s->op->noutputs + s->op->ninputs > 1 ||
                   (s->next != nullptr && IsOp(s->next) &&
                    s->next->op->code == s->op->code);
        });

        if (found.empty())
            return "";
        Place p = found[Pick(found.size())];
        hd_op *op = p.stmt->op;
        std::vector<hd_view> views(op->view,
                                   op->view + op->noutputs + op->ninputs);
        if (views.size() > 1 && Pick(2)) {
            views.erase(views.begin() + static_cast<long>(Pick(views.size())));
        } else if (p.stmt->next != nullptr && IsOp(p.stmt->next) &&
                   p.stmt->next->op->code == op->code) {
            const hd_op *next = p.stmt->next->op;

            views.insert(views.end(), next->view,
                         next->view + next->noutputs + next->ninputs);
            hd_block_remove(p.block, p.stmt, p.stmt->next);
        }
        if (views.size() > HD_MAX_OPERANDS)
            return "";
        int n = static_cast<int>(views.size());
        hd_loc loc = op->loc;
        bool records = op->code == HD_OP_RECORD;
        p.stmt->op = hd_stmt_op(module_, op->code, -1, records ? n : 0,
                                records ? 0 : n, 0, loc)
                         ->op;
        std::copy(views.begin(), views.end(), p.stmt->op->view);
        return "lists";
    }
    // To another place among its neighbours.
    std::string Move()
    {
        auto found = Such([](const hd_stmt *s) {
            return s->kind != HD_STMT_LET && s->kind != HD_STMT_FOR;
        });
        std::vector<hd_stmt *> siblings;

        if (found.empty())
            return "";
        Place p = found[Pick(found.size())];
        for (hd_stmt *s = p.block->first; s != nullptr; s = s->next)
            if (s != p.stmt)
                siblings.push_back(s);
        if (siblings.empty())
            return "";
        hd_block_remove(p.block, p.before, p.stmt);
        hd_block_insert(
            p.block, Pick(4) == 0 ? nullptr : siblings[Pick(siblings.size())],
            p.stmt);
        return "move " + Word(p.stmt);
    }
    // What orders goes to the first or the last place of the program, or is
    // there, too: where one run meets the next.
    std::string ToAnEnd()
    {
        auto found = Such([](const hd_stmt *s) {
            return IsOp(s) && hd_op_is(s->op, HD_UNIT_SYNC);
        });
        hd_block *body = &module_->body;
        hd_stmt *last = nullptr;

        if (found.empty())
            return "";
        Place p = found[Pick(found.size())];
        hd_stmt *moved = Pick(2) ? Copy(p.stmt) : p.stmt;
        if (moved == p.stmt)
            hd_block_remove(p.block, p.before, p.stmt);
        if (Pick(2))
            for (hd_stmt *s = body->first; s != nullptr; s = s->next)
                last = s;
        hd_block_insert(body, last, moved);
        return Word(p.stmt) + " at an end";
    }
    // A transfer trades places with another one, whatever block it is in.
    std::string SwapTransfers()
    {
        auto found = Such([](const hd_stmt *s) {
            return IsOp(s) && hd_op_is(s->op, HD_UNIT_TRANSFER);
        });

        if (found.size() < 2)
            return "";
        hd_stmt *a = found[Pick(found.size())].stmt;
        hd_stmt *b = found[Pick(found.size())].stmt;
        std::swap(a->op, b->op);
        return a == b ? "" : "swap " + Word(a) + " with " + Word(b);
    }
    std::string Ungroup()
    {
        auto found =
            Such([](const hd_stmt *s) { return s->kind == HD_STMT_GROUP; });

        if (found.empty())
            return "";
        Place p = found[Pick(found.size())];
        hd_stmt *at = p.before;
        hd_block_remove(p.block, p.before, p.stmt);
        for (hd_stmt *s = p.stmt->body.first, *next; s != nullptr; s = next) {
            next = s->next;
            hd_block_insert(p.block, at, s);
            at = s;
        }
        return "ungroup";
    }
    // Puts a transfer into a group with the next one.
    std::string Group()
    {
        auto found = Such([](const hd_stmt *s) {
            return IsOp(s) && hd_op_is(s->op, HD_UNIT_TRANSFER) &&
                   s->next != nullptr && IsOp(s->next) &&
                   hd_op_is(s->next->op, HD_UNIT_TRANSFER);
        });

        if (found.empty())
            return "";
        Place p = found[Pick(found.size())];
        hd_stmt *group = hd_stmt_new(module_, HD_STMT_GROUP, p.stmt->loc);
        hd_stmt *second = p.stmt->next;
        hd_block_remove(p.block, p.stmt, second);
        hd_block_remove(p.block, p.before, p.stmt);
        hd_block_append(&group->body, p.stmt);
        hd_block_append(&group->body, second);
        hd_block_insert(p.block, p.before, group);
        return "group " + Word(p.stmt);
    }
    // A launch loses its first or its last step, gets one beside it, or is
    // none; or some statements become one.
    std::string Launch()
    {
        auto launches =
            Such([](const hd_stmt *s) { return s->kind == HD_STMT_LAUNCH; });
        auto others = Such(MayBeLaunched);

        if (!launches.empty() && Pick(3) > 0)
            return Border(launches[Pick(launches.size())]);
        if (others.empty())
            return "";
        Place p = others[Pick(others.size())];
        hd_stmt *launch = hd_stmt_new(module_, HD_STMT_LAUNCH, p.stmt->loc);
        hd_block_insert(p.block, p.before, launch);
        for (size_t n = 1 + Pick(4); n > 0; n--) {
            hd_stmt *s = launch->next;

            if (s == nullptr || !MayBeLaunched(s))
                break;
            hd_block_remove(p.block, launch, s);
            hd_block_append(&launch->body, s);
        }
        return "launch " + Word(p.stmt);
    }
    std::string Border(const Place &p)
    {
        hd_block *body = &p.stmt->body;
        hd_stmt *first = body->first, *last = nullptr, *next = p.stmt->next;

        for (hd_stmt *s = first; s != nullptr && s->next != nullptr;
             s = s->next)
            last = s;
        if (Pick(2) && next != nullptr && MayBeLaunched(next)) {
            hd_block_remove(p.block, p.stmt, next);
            hd_block_append(body, next);
            return Word(next) + " into a launch";
        }
        if (first == nullptr)
            return "";
        hd_stmt *out = Pick(2) || last == nullptr ? first : last->next;
        hd_block_remove(body, out == first ? nullptr : last, out);
        hd_block_insert(p.block, out == first ? p.before : p.stmt, out);
        return Word(out) + " out of a launch";
    }
    // Only on some ranks.
    std::string Branch()
    {
        auto found = Such(IsOp);

        if (found.empty() || module_->naxes == 0)
            return "";
        Place p = found[Pick(found.size())];
        hd_stmt *branch = hd_stmt_new(module_, HD_STMT_IF, p.stmt->loc);
        int axis = static_cast<int>(Pick(static_cast<size_t>(module_->naxes)));
        branch->a = hd_expr_binary(module_, Pick(2) ? HD_EXPR_EQ : HD_EXPR_NE,
                                   hd_expr_coord(module_, axis),
                                   hd_expr_const(module_, 0));
        hd_block_remove(p.block, p.before, p.stmt);
        hd_block_append(&branch->body, p.stmt);
        hd_block_insert(p.block, p.before, branch);
        return Word(p.stmt) + " on some ranks";
    }

    // ------------------------------------------------------ expressions

    hd_expr Shift(hd_expr e, int64_t n)
    {
        static const int64_t steps[] = {1, -1, 2};

        return hd_expr_mod(
            module_,
            hd_expr_binary(module_, HD_EXPR_ADD, e,
                           hd_expr_const(module_, steps[Pick(3)])),
            hd_expr_const(module_, n));
    }
    std::string Retarget()
    {
        std::vector<hd_key *> found;

        for (const Place &p : places_)
            for (int i = 0; IsOp(p.stmt) && i < p.stmt->op->nkeys; i++) {
                hd_key *key = &p.stmt->op->key[i];

                if (key->code == HD_KEY_TO || key->code == HD_KEY_FROM ||
                    key->code == HD_KEY_ROOT)
                    found.push_back(key);
            }
        if (found.empty())
            return "";
        hd_key *key = found[Pick(found.size())];
        key->expr = Shift(key->expr, module_->axis[0].size);
        return std::string("retarget ") + hd_key_info_get(key->code)->text;
    }
    std::string Index()
    {
        struct Found {
            hd_view *view;
            int dim;
        };
        std::vector<Found> found;

        for (const Place &p : places_) {
            for (int i = 0; IsOp(p.stmt) && i < p.stmt->op->nviews; i++) {
                hd_view *view = &p.stmt->op->view[i];

                for (int d = 0; d < view->nindex; d++)
                    if (view->index[d] >= 0 &&
                        !hd_dim_is_sharded(view->buffer->type.dim[d]))
                        found.push_back({view, d});
            }
        }
        if (found.empty())
            return "";
        Found f = found[Pick(found.size())];
        int64_t n = f.view->buffer->type.dim[f.dim].extent;
        hd_expr *e = &f.view->index[f.dim];
        // Fewer slots than there are, or the slot beside.
        *e = n > 1 && Pick(3) == 0
                 ? hd_expr_mod(module_, *e, hd_expr_const(module_, n - 1))
                 : Shift(*e, n);
        return std::string("index of %") + f.view->buffer->name;
    }
    // Another block, or one of more or fewer.
    std::string Block(hd_view *view, int dim, hd_range range)
    {
        bool other = Pick(3) > 0;
        int64_t blocks = other ? range.blocks : range.blocks % 5 + 1;

        hd_view_keep_block(module_, view, dim,
                           other ? Shift(range.block, blocks) : range.block,
                           blocks);
        return std::string("block of %") + view->buffer->name;
    }
    // A range goes one index aside, or it, or all of its operation, begin or
    // end one index elsewhere.
    std::string Range()
    {
        struct Found {
            hd_op *op;
            hd_view *view;
            int dim;
        };
        std::vector<Found> found;

        for (const Place &p : places_)
            for (int i = 0; IsOp(p.stmt) && i < p.stmt->op->nviews; i++) {
                hd_view *view = &p.stmt->op->view[i];

                for (int d = 0; d < view->nindex; d++)
                    if (hd_view_range(view, d) != nullptr)
                        found.push_back({p.stmt->op, view, d});
            }
        if (found.empty())
            return "";
        Found f = found[Pick(found.size())];
        hd_range range = *hd_view_range(f.view, f.dim);
        if (hd_dim_is_sharded(f.view->buffer->type.dim[f.dim]))
            return ""; // of which there is the own block alone
        if (range.block != HD_EXPR_NONE && Pick(2))
            return Block(f.view, f.dim, range);
        hd_expr by = hd_expr_const(module_, Pick(2) ? 1 : -1);
        size_t way = Pick(4);
        bool alone = way == 0 || Pick(3) == 0;
        for (const Found &other : found) {
            if (other.op != f.op ||
                (alone && (other.view != f.view || other.dim != f.dim)))
                continue;
            range = *hd_view_range(other.view, other.dim);
            if (hd_dim_is_sharded(other.view->buffer->type.dim[other.dim]))
                continue;
            hd_expr low = Plus(range.low, by), past = Plus(range.past, by);
            if (way <= 1) {
                hd_expr count = range.extent >= 0
                                    ? hd_expr_const(module_, range.extent)
                                    : static_cast<hd_expr>(~range.extent);

                hd_view_keep(module_, other.view, other.dim, low,
                             Plus(low, count));
            } else {
                hd_view_keep(module_, other.view, other.dim,
                             way == 2 ? low : range.low,
                             way == 2 ? range.past : past);
            }
        }
        return std::string("range of %") + f.view->buffer->name;
    }
    hd_expr Plus(hd_expr a, hd_expr b)
    {
        return hd_expr_binary(module_, HD_EXPR_ADD, a, b);
    }
    std::string Stream()
    {
        auto found =
            Such([](const hd_stmt *s) { return s->kind == HD_STMT_ON; });

        if (found.empty())
            return "";
        hd_stmt *s = found[Pick(found.size())].stmt;
        s->a = Pick(2)
                   ? Shift(s->a, module_->streams)
                   : hd_expr_const(module_,
                                   static_cast<int64_t>(Pick(
                                       static_cast<size_t>(module_->streams))));
        return "stream";
    }
    std::string Bounds()
    {
        auto found = Such([](const hd_stmt *s) {
            return s->kind == HD_STMT_FOR || s->kind == HD_STMT_IF;
        });

        if (found.empty())
            return "";
        hd_stmt *s = found[Pick(found.size())].stmt;
        if (s->kind == HD_STMT_IF) {
            s->a = hd_expr_not(module_, s->a);
            return "condition";
        }
        hd_expr one = hd_expr_const(module_, 1);
        if (Pick(2))
            s->a = hd_expr_binary(module_, HD_EXPR_ADD, s->a, one);
        else
            s->b = hd_expr_binary(module_, HD_EXPR_SUB, s->b, one);
        return "bounds";
    }

    // ---------------------------------------------------- declarations

    static bool MayShare(const hd_buffer *b)
    {
        return b->role == HD_ROLE_TEMP && b->type.dtype != HD_DTYPE_EVENT &&
               !b->shared;
    }
    static bool MayBeShared(const hd_buffer *b)
    {
        return b->role != HD_ROLE_IN && b->type.dtype != HD_DTYPE_EVENT &&
               !b->shared && b->of == nullptr;
    }
    std::string Lifetime()
    {
        std::vector<hd_buffer *> found;

        for (hd_buffer *b = module_->buffers; b != nullptr; b = b->next)
            if (MayShare(b))
                found.push_back(b);
        if (found.empty())
            return "";
        hd_buffer *b = found[Pick(found.size())];
        if (b->of != nullptr) {
            b->of = nullptr;
            return std::string("bytes of its own for %") + b->name;
        }
        for (hd_buffer *other = module_->buffers; other != b;
             other = other->next)
            if (MayBeShared(other) && Pick(2) &&
                other->type.dtype == b->type.dtype &&
                (other->role == HD_ROLE_TEMP
                     ? hd_type_local_elements(&other->type) >=
                           hd_type_local_elements(&b->type)
                     : hd_type_local_elements(&other->type) ==
                           hd_type_local_elements(&b->type))) {
                for (hd_buffer *c : found)
                    if (c->of == b)
                        return "";
                b->of = other;
                return std::string("%") + b->name + " of %" + other->name;
            }
        return "";
    }
    static bool SameType(const hd_type &a, const hd_type &b)
    {
        if (a.dtype != b.dtype || a.ndims != b.ndims)
            return false;
        for (int d = 0; d < a.ndims; d++)
            if (hd_dim_local(a.dim[d]) != hd_dim_local(b.dim[d]) ||
                hd_dim_is_cut(a.dim[d]) != hd_dim_is_cut(b.dim[d]) ||
                (hd_dim_is_cut(a.dim[d]) && a.dim[d].extent != b.dim[d].extent))
                return false;
        return true;
    }
    // A buffer of the same type in place of another.
    std::string Rename()
    {
        std::vector<hd_view *> found;

        for (const Place &p : places_)
            for (int i = 0; IsOp(p.stmt) && i < p.stmt->op->nviews; i++)
                found.push_back(&p.stmt->op->view[i]);
        if (found.empty())
            return "";
        hd_view *view = found[Pick(found.size())];
        std::vector<hd_buffer *> others;
        for (hd_buffer *b = module_->buffers; b != nullptr; b = b->next)
            if (b != view->buffer && SameType(b->type, view->buffer->type))
                others.push_back(b);
        if (others.empty())
            return "";
        view->buffer = others[Pick(others.size())];
        return std::string("to %") + view->buffer->name;
    }
    hd_view NewEvent(hd_loc loc)
    {
        hd_type type = {};
        std::string name = "new" + std::to_string(module_->nbuffers);

        type.dtype = HD_DTYPE_EVENT;
        hd_view view = {};
        view.buffer =
            hd_module_add_buffer(module_, name.c_str(), HD_ROLE_TEMP, &type);
        view.loc = loc;
        return view;
    }
    // An event that nobody waits for, at the end of a block.
    std::string Mark()
    {
        auto found =
            Such([](const hd_stmt *s) { return s->kind == HD_STMT_ON; });
        hd_block *block = &module_->body;

        if (!found.empty() && Pick(4) > 0)
            block = &found[Pick(found.size())].stmt->body;
        hd_loc loc = {};
        hd_stmt *record = hd_stmt_op(module_, HD_OP_RECORD, -1, 1, 0, 0, loc);
        record->op->view[0] = NewEvent(loc);
        hd_block_append(block, record);
        return "record for nobody";
    }
    // A send that its stream waits for becomes a deferred one, which the stream
    // or the caller's waits for, or nobody.
    std::string Defer()
    {
        auto found = Such([](const hd_stmt *s) {
            return IsOp(s) && s->op->code == HD_OP_SEND &&
                   hd_op_key(s->op, HD_KEY_DONE) == nullptr;
        });

        if (found.empty())
            return "";
        Place p = found[Pick(found.size())];
        hd_op *from = p.stmt->op;
        hd_op *op = hd_stmt_op(module_, HD_OP_SEND, from->axis, 0, 1,
                               from->nkeys + 1, from->loc)
                        ->op;
        std::copy(from->view, from->view + 1, op->view);
        std::copy(from->key, from->key + from->nkeys, op->key);
        hd_key done = {};
        done.code = HD_KEY_DONE;
        done.loc = op->loc;
        done.view = op->nviews++;
        op->view[done.view] = NewEvent(op->loc);
        op->nkeys = from->nkeys;
        op->key[op->nkeys++] = done;
        p.stmt->op = op;
        hd_stmt *wait = hd_stmt_op(module_, HD_OP_WAIT, -1, 0, 1, 0, op->loc);
        wait->op->view[0] = op->view[done.view];
        switch (Pick(4)) {
        case 0:
            return "defer";
        case 1:
            hd_block_insert(p.block, p.block->first, wait);
            return "defer, wait beside";
        default:
            hd_block_append(&module_->body, wait);
            return "defer, wait at the end";
        }
    }
    // A deferred send becomes one that its stream waits for, and its waits go
    // to whoever recorded the event before.
    std::string Undefer()
    {
        std::vector<hd_op *> found;

        for (const Place &p : places_)
            if (IsOp(p.stmt) && hd_op_key(p.stmt->op, HD_KEY_DONE) != nullptr)
                found.push_back(p.stmt->op);
        if (found.empty())
            return "";
        hd_op *op = found[Pick(found.size())];
        op->nkeys--; // it is the last of the keys of a send, and of its views
        op->nviews--;
        return "undefer";
    }
};

} // namespace

std::string Mutate(hd_module *module, std::mt19937 &random)
{
    return Mutator(module, random).Run();
}
