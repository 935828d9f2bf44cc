// Programs from nothing whose ranks along an axis issue some of the steps each:
// conditions and bounds on the coordinate, roots, collectives in both branches.
// A part of them is without mistakes, but for what two steps do to each other.
#ifndef HD_TESTS_MUTATION_COMPOSER_H
#define HD_TESTS_MUTATION_COMPOSER_H

#include <random>
#include <string>
#include <utility>
#include <vector>

class Composer
{
  public:
    explicit Composer(unsigned seed)
        : random_(seed), n_(2 + Below(Below(16) ? 5 : 15)), two_(Below(4) == 0),
          slips_(Below(8) > 1), attends_(Below(4) == 0), flat_(Below(2)),
          sized_(Below(8) == 0), rows_(1 + Below(3 * n_))
    {
    }

    std::string Text()
    {
        std::string rows = Word(rows_), text = "heddle 2\nhost program t ";

        text += sized_ ? "param m in 1.." + rows + " mesh " : "mesh ";
        text += !two_      ? Form("tp=#")
                : Below(4) ? Form("tp=#, dp=2")
                           : Form("dp=2, tp=#");
        text +=
            Form(" streams 3 in %i : f32[2] "
                 "inout %a : f32[2] shared temp %n : f32[2] of %a "
                 "inout %x : f32[#, 2] shared "
                 "temp %t : f32[#, 2] shared temp %q : f32[#, 2] of %t "
                 "inout %o : f32[$@tp, 2] shared temp %u : f32[$, 2] shared "
                 "temp %j : f32[$, 2] shared "
                 "temp %b : f32[2] shared inout %c : f32[2] shared "
                 "temp %g : f32[#, 2] shared temp %v : f32[$] of %g "
                 "inout %r : f32[#, 2] shared "
                 "temp %p : f32[#, 2] temp %w : f32[#, 2] "
                 "out %y : f32[#, 2] out %z : f32[2] temp %e : event[#] "
                 "temp %f : event[#] temp %d : event[3] temp %h : event[3] out "
                 "%ok : event[] ",
                 {sized_ ? "m" : rows, sized_ ? "m" : rows, sized_ ? "m" : rows,
                  flat_ ? Word(2 * n_) : Form("#, 2")});
        if (attends_)
            text += Form("in %l : f32[1, 2, 2] in %k : f32[#, 1, 2, 2] "
                         "inout %m : f32[1, 2, 2] inout %s : f32[1, 2] ");
        text += "{ ";
        for (const char *name : {"%b", "%g", "%t", "%u", "%y", "%z"})
            text += Slip() ? "" : std::string(name) + " = fill value 0 ";
        if (Below(4) == 0)
            return text + Chain() + "%ok = record }";
        text += "fork ";
        for (unsigned i = 1 + Below(3); i > 0; i--)
            text += Segment() + (Slip() ? "" : "join fork ");
        text += Slip() ? "" : "join ";
        return text + (Slip() ? Form("if $ { %ok = record } }", {Condition()})
                              : "%ok = record }");
    }

  private:
    unsigned Below(unsigned n)
    {
        return static_cast<unsigned>(random_() % n);
    }
    bool Slip()
    {
        return slips_ && Below(12) == 0;
    }
    static std::string Word(size_t n)
    {
        return std::to_string(n);
    }
    // '$' are the words in turn, '#' is how many ranks there are.
    std::string Form(const std::string &form,
                     const std::vector<std::string> &words = {}) const
    {
        std::string text;
        size_t at = 0;

        for (char c : form)
            text += c == '$'   ? words.at(at++)
                    : c == '#' ? Word(n_)
                               : std::string(1, c);
        return text;
    }
    // One more or less, by mistake.
    std::string Near(unsigned n)
    {
        return Word(!Slip() ? n : n > 0 && Below(2) ? n - 1 : n + 1);
    }
    std::string Number()
    {
        return Word(Below(n_));
    }
    std::string Loop()
    {
        return loops_.empty() ? Number() : loops_[Below(Count(loops_))];
    }
    template <typename T> static unsigned Count(const std::vector<T> &list)
    {
        return static_cast<unsigned>(list.size());
    }
    std::string Name(const std::string &letter)
    {
        return letter + Word(++names_);
    }

    // ------------------------------------------------------------- numbers

    std::string Simple()
    {
        switch (Below(14)) {
        case 0:
            return Form("tp == $", {Number()});
        case 1:
            return Form("tp != $", {Number()});
        case 2:
            return Form("tp < $", {Word(Below(n_ + 1))});
        case 3:
            return Form("tp <= $", {Loop()});
        case 4:
            return Form("tp + $ < #", {Loop()});
        case 5:
            return Form("(tp + $) mod # < $", {Number(), Word(1 + Below(n_))});
        case 6:
            return Form("tp / 2 == $", {Word(Below(2))});
        case 7:
            return "tp mod 2 == 0";
        case 8:
            return Form("$ == $", {Loop(), Number()});
        case 9:
            return Form("tp == $", {Loop()});
        case 10:
            return Form("tp - $ >= $", {Loop(), Number()});
        case 11:
            return Form("max(tp, $) == tp", {Number()});
        case 12:
            return !two_      ? Form("tp > $", {Number()})
                   : Below(3) ? "dp == 0"
                              : "tp == dp";
        default:
            return Form("2 * tp >= $ + $", {Number(), Loop()});
        }
    }
    std::string Condition()
    {
        switch (Below(8)) {
        case 0:
            return Form("($ and $)", {Simple(), Simple()});
        case 1:
            return Form("($ or $)", {Simple(), Simple()});
        case 2:
            return Form("not ($)", {Simple()});
        default:
            return Simple();
        }
    }
    std::string Bounds()
    {
        switch (Below(9)) {
        case 0:
            return "0..tp";
        case 1:
            return Form("tp..#");
        case 2:
            return Form("0..# - tp");
        case 3:
            return Form("max(tp, $)..#", {Number()});
        case 4:
            return Form("0..min(tp + 1, $)", {Number()});
        case 5:
            return "tp / 2..tp";
        case 6:
            return "0..2";
        default:
            return Form("0..#");
        }
    }
    static bool IsOfSome(const std::string &text)
    {
        return text.find("tp") != std::string::npos ||
               text.find("dp") != std::string::npos;
    }
    std::string Fixed()
    {
        switch (Below(4)) {
        case 0:
            return Number();
        case 1:
            return Form("($ + $) mod #", {Loop(), Number()});
        default:
            return Loop();
        }
    }
    std::string Turning()
    {
        switch (Below(5)) {
        case 0:
            return Form("(tp + $) mod #", {Number()});
        case 1:
            return Form("(tp - $) mod #", {Loop()});
        case 2:
            return Form("(tp + $ + $) mod #", {Loop(), Number()});
        default:
            return "tp";
        }
    }

    // --------------------------------------------------------------- views

    // Two elements, of one of two halves of the buffers.
    std::string View(bool reads)
    {
        unsigned half = Slip() ? 1 - half_ : half_;

        if (reads && Below(7) == 0)
            return "%i";
        if (half == 0) {
            switch (Below(5)) {
            case 0:
                return Below(6) ? "%a" : "%n";
            case 1:
            case 2:
                return Form("%x[$]", {Fixed()});
            default:
                return Form(Below(8) ? "%t[$]" : "%q[$]", {Turning()});
            }
        }
        switch (Below(7)) {
        case 0:
            return "%b";
        case 1:
            return reads || Below(2) ? "%c" : "%z";
        case 2:
        case 3:
        case 4:
            return Form(flat_ || Below(8) ? "%g[$]" : "%v[$]", {Fixed()});
        default:
            return Form(reads || Below(4) ? "%r[$]" : "%y[$]", {Turning()});
        }
    }
    std::string Shared()
    {
        std::string view;

        do
            view = View(false);
        while (std::string("vqnyz").find(view[1]) != std::string::npos);
        return view;
    }

    // --------------------------------------------------------------- steps

    std::string Compute()
    {
        switch (Below(8)) {
        case 0:
            return View(false) + " = fill value 1 ";
        case 1:
            return Form("$ = scale $ by 2 ", {View(false), View(true)});
        case 2:
            return Form("$ = add $, $ ", {View(false), View(true), View(true)});
        case 3:
            return half_ == 0 ? Blocks() : Compute();
        case 4:
            return attends_ && half_ == 0 ? Attend() : Compute();
        default:
            return Form("$ = copy $ ", {View(false), View(true)});
        }
    }
    std::string Blocks()
    {
        std::string at = Turning();

        switch (Below(3)) {
        case 0:
            return Form(at == "tp" && Below(2)
                            ? "%u[$ of #] = scale %o[$ of #] by 2 "
                            : "%u[$ of #] = scale %u[$ of #] by 2 ",
                        {at, at});
        case 1:
            return Form("%u[$ of #] = fill value 1 ", {at});
        default:
            return Form("%o[tp of #] = scale %u[tp of #] by 2 ");
        }
    }
    std::string Attend()
    {
        static const char *const masks[] = {
            "", " causal 0", " causal 2 * tp - 2", " zigzag 0", " causal 1"};
        std::string keys = Form("%k[$]", {Turning()});

        return Form("%m, %s = attention %l, $, $$",
                    {keys, keys, masks[Below(5)]}) +
               (Below(4) ? " accumulate " : " ");
    }
    std::string Root()
    {
        std::string root = Loop(), other = Slip() ? Number() : root;

        switch (Below(7)) {
        case 0:
            return Form("$ = broadcast@tp %b root $ ", {"%b", root});
        case 1:
            return Form("if tp == $ { broadcast@tp $ root $ } "
                        "if tp != $ { $ = broadcast@tp root $ } ",
                        {other, View(true), root, root, Shared(), root});
        case 2:
            return Form("if tp == $ { $ = reduce@tp $ root $ } "
                        "else { reduce@tp $ root $ $} ",
                        {root, Shared(), Shared(), other, Shared(), root,
                         Slip() ? "max " : ""});
        case 3:
            return Form("%a = reduce@tp %a root $ ", {root});
        default:
            return Form("if tp == $ { broadcast@tp $ root $ } "
                        "else { $ = broadcast@tp root $ } ",
                        {root, View(true), other, Shared(), root});
        }
    }
    std::string Sum(const std::string &axis)
    {
        std::string view = Shared();

        return Form("$ = all_reduce$ $ ", {view, axis, view});
    }
    std::string Together()
    {
        std::string c;

        switch (Below(7)) {
        case 0:
            return Form(
                "if $ { $} else { $$} ",
                {Condition(), Sum("@tp"), Sum("@tp"), Slip() ? "max " : ""});
        case 1:
            return (half_ == 0 ? "%t = all_gather@tp "
                               : "%g = all_gather@tp ") +
                   View(true) + " ";
        case 2:
            return half_ == 0 ? "%t = all_gather@tp %t[tp] "
                              : "%r = all_gather@tp %r[tp] ";
        case 3:
            return Sum("@tp");
        case 4:
            c = Condition();
            return Form("if $ { $} if not ($) { $} ",
                        {c, Sum("@tp"), Slip() ? Condition() : c, Sum("@tp")});
        default:
            return two_ ? Sum("@dp") : Root();
        }
    }

    // Sends and recvs of some ranks, `by` further along; `sent_` says of which.
    std::string Pair(const std::string &done)
    {
        unsigned by = 1 + Below(n_ - 1), low = Below(n_), past = 1 + Below(n_);
        unsigned k = Below(n_);
        std::string from = View(true), to = Shared(), d = Word(by), j = Loop();
        std::string get = Slip() ? " get" : "", q = Name("q");
        bool less = Below(4) == 0;

        if (Below(5) == 0 && half_ == 0) {
            from = Form("%u[(tp + $) mod # of #]", {Word(k)});
            to = Form("%u[(tp + $) mod # of #]", {Near(k + n_ - by)});
        } else if (Below(12) == 0) {
            from = "%i[0..0]";
            to = Slip() ? "%a[0..1]" : "%a[0..0]";
        }
        sent_ = "";
        switch (Below(4)) {
        case 0:
            return Form("send@tp $ to (tp + $) mod #$$ "
                        "$ = recv@tp from (tp - $) mod # ",
                        {from, Near(by), get, done, to, d});
        case 1:
            sent_ = Form("tp < $$", {Word(n_ - by),
                                     less ? Form(" and tp >= $", {j}) : ""});
            return Form("if $ { send@tp $ to tp + $$ } "
                        "if tp >= $$ { $ = recv@tp from tp - $$ } ",
                        {Slip() ? Condition() : sent_, from, d, done, Near(by),
                         less ? Form(" and tp - $ >= $", {d, j}) : "", to, d,
                         get});
        case 2:
            sent_ = "tp >= " + d;
            return Form("if tp >= $ { send@tp $ to tp - $$ } "
                        "if tp < $ { $ = recv@tp from tp + $ } ",
                        {Near(by), from, d, done, Near(n_ - by), to, d});
        default:
            sent_ = Form("tp >= $ and tp < $", {Word(low), Word(past)});
            return Form("let $ = (tp - $) mod # "
                        "if tp >= $ and tp < $ "
                        "{ send@tp $ to (tp + $) mod #$ } "
                        "if $ >= $ and $ < $ { $ = recv@tp from $ } ",
                        {q, Near(by), Word(low), Near(past), from, d, done, q,
                         Near(low), q, Word(past), to, q});
        }
    }
    std::string AlongOther()
    {
        return Form("send@dp $ to 1 - dp $ = recv@dp from 1 - dp ",
                    {View(true), Shared()});
    }
    std::string Exchange()
    {
        std::string d = Word(Below(3)), text;

        if (Below(4) == 0) {
            text = Pair(Form(" done %d[$]", {d}));
            text = Below(2) ? Form("group { $} ", {text}) : text;
            text += Below(3) == 0 ? Compute() : "";
            return text + (Slip() ? ""
                           : sent_.empty()
                               ? Form("wait %d[$] ", {d})
                               : Form("if $ { wait %d[$] } ", {sent_, d}));
        }
        for (unsigned i = 1 + (Below(3) == 0); i > 0; i--)
            text += Pair("");
        return Form("group { $$} ",
                    {text, two_ && Below(6) == 0 ? AlongOther() : ""});
    }
    // Blocks of peers of all distances, of those that have one.
    std::string Direct()
    {
        std::string j = Name("j"), text;

        half_ = 0;
        text = Below(2) ? Form("send@tp %r[tp] to (tp + $) mod # "
                               "%t[(tp - $) mod #] = recv@tp from "
                               "(tp - $) mod # ",
                               {j, j, j})
                        : Form("if tp + $ < # { send@tp %r[tp] to tp + $ } "
                               "if tp >= $ + $ { %t[tp - $] = recv@tp from "
                               "tp - $ } ",
                               {j, j, j, Near(0), j, j});
        return Form(Below(3) ? "for $ in 1..# { group { $} } "
                             : "group { for $ in 1..# { $} } ",
                    {j, text});
    }
    // Temporaries that some ranks write, and some read.
    std::string Parts()
    {
        std::string c = Condition(), d = Condition(), text;
        std::string view =
            Below(2) ? Form("%p[$]", {Turning()}) : Form("%w[$]", {Fixed()});

        text = Form("if $ { $ = copy %i } ", {c, view});
        switch (Below(4)) {
        case 0:
            text += Form("if not ($) { $ = fill value 1 } ", {c, view});
            d = Slip() ? d : "tp >= 0";
            break;
        case 1:
            text += Form("if $ { $ = fill value 1 } ", {d, view});
            d = Form("$ or $", {c, d});
            break;
        default:
            d = Form("$ and $", {c, d});
        }
        return text +
               Form("if $ { $ = copy $ } ",
                    {Slip() ? Condition() : d, half_ == 0 ? "%a" : "%c", view});
    }
    std::string Let(unsigned depth)
    {
        std::string b = Name("b"), more = Loop(), steps;

        some_++;
        steps = Steps(depth + 1);
        some_--;
        return Form("let $ = tp - $ if $ $ { $[$ mod #] = copy $ $} ",
                    {b, more, b, Below(2) ? ">= 0" : "< " + Number(),
                     half_ == 0 ? "%t" : "%r", b, View(true), steps});
    }
    std::string If(unsigned depth)
    {
        std::string condition = Condition(), text;
        bool some = IsOfSome(condition);

        some_ += some;
        text = Form("if $ { $} ", {condition, Steps(depth + 1)});
        if (Below(3) == 0)
            text += Form("else { $} ", {Steps(depth + 1)});
        some_ -= some;
        return text;
    }
    std::string For(unsigned depth)
    {
        std::string j = Name("j"), bounds = Bounds(), text;
        bool some = IsOfSome(bounds);

        some_ += some;
        loops_.push_back(j);
        text = Form("for $ in $ { $} ", {j, bounds, Steps(depth + 1)});
        loops_.pop_back();
        some_ -= some;
        return text;
    }
    std::string Step(unsigned depth)
    {
        bool all = some_ == 0 || Slip(), other = two_ && Below(2);

        switch (Below(depth < 3 ? 13 : 7)) {
        case 0:
            return all     ? Exchange()
                   : other ? Form("group { $} ", {AlongOther()})
                           : Compute();
        case 1:
            return all ? Root() : Compute();
        case 2:
            return all ? Together() : other ? Sum("@dp") : Compute();
        case 7:
        case 8:
        case 9:
            return If(depth);
        case 10:
        case 11:
            return For(depth);
        case 12:
            return Let(depth);
        default:
            return Compute();
        }
    }
    std::string Steps(unsigned depth)
    {
        std::string text;

        for (unsigned i = 1 + Below(2); i > 0; i--)
            text += Step(depth);
        return text;
    }

    // ------------------------------------------------------------ segments

    std::string On(unsigned stream, const std::string &steps)
    {
        return Form("on stream $ { $} ", {Word(stream), steps});
    }
    std::string Event(unsigned at)
    {
        return Form(Below(2) ? "%e[$]" : "%f[(tp + $) mod #]", {Word(at % n_)});
    }
    // What some ranks record is waited for by as many, or by fewer.
    std::string Handoff()
    {
        std::string e = Event(Below(n_)), c = Condition(), first, second;
        std::string d = Below(2) ? c : Form("$ and $", {c, Condition()});

        some_++;
        first = Steps(3) + e + " = record ";
        second =
            Form("if $ { wait $ $} ", {Slip() ? Condition() : d, e, Steps(3)});
        some_--;
        if (Below(8) == 0) // the others record it elsewhere
            return On(0, Form("if $ { $} ", {c, first})) +
                   On(2, Form("if not ($) { $ = record } ", {c, e})) +
                   On(1, Form("wait $ if $ { $ } ", {e, c, Compute()}));
        return On(0, Below(3) ? Form("if $ { $} ", {c, first}) : first) +
               On(1, second);
    }
    // What orders streams and what is to be ordered, each of some ranks.
    std::string Clocks()
    {
        std::string arc[] = {"", Condition(), Condition()}, text;
        std::vector<std::pair<std::string, unsigned>> recorded;
        unsigned last = 0;

        some_++;
        for (unsigned i = 4 + Below(8); i > 0; i--) {
            unsigned a = Below(3), stream = Below(3), what = Below(4);
            std::string step;

            if (what == 0) {
                recorded.push_back(
                    {Event(Below(4) ? Count(recorded) : Below(n_)), a});
                step = recorded.back().first + " = record ";
            } else if (what < 3 && !recorded.empty()) {
                const auto &r = recorded[Below(3) ? recorded.size() - 1
                                                  : Below(Count(recorded))];

                a = r.second != 0 && !Slip() ? r.second : a;
                step = Form("wait $ ", {r.first});
            } else {
                stream = Below(3) ? stream : last;
                last = stream;
                step = Compute();
            }
            text +=
                On(stream, a > 0 ? Form("if $ { $} ", {arc[a], step}) : step);
        }
        some_--;
        return text;
    }
    // A step on a stream, of all ranks or of some.
    std::string Some(unsigned stream, const std::string &step)
    {
        unsigned i = Below(4);

        return On(stream,
                  i < 2 ? step : Form("if $ { $} ", {arc_[i - 2], step}));
    }
    // The caller's stream ahead of the others, by a fork or by events.
    std::string Begin()
    {
        std::string text = "%h[0] = record ";

        if (Below(4))
            return "fork ";
        for (unsigned i = 0; i < 3; i++)
            text += Some(i, "wait %h[0] ");
        return text;
    }
    std::string End()
    {
        std::string text;

        if (Below(4))
            return "join ";
        for (unsigned i = 0; i < 3; i++)
            text +=
                On(i, Form("%h[$] = record ", {Word(i)})) +
                (Below(3) ? Form("wait %h[$] ", {Word(i)})
                          : Form("if $ { wait %h[$] } ", {arc_[0], Word(i)}));
        return text;
    }
    // One step that another one is to follow, from stream to stream.
    std::string Chain()
    {
        std::string view = Below(2) ? "%a" : Form("%r[$]", {Turning()});
        std::string e = "%e[0]", first, end, text;
        unsigned streams = 2 + Below(2);

        arc_[0] = Condition();
        arc_[1] = Condition();
        text = Begin() + On(0, "%e[1] = record ");
        if (Below(3) == 0) {
            e = "%d[0]";
            end = Slip() ? "" : "wait %d[0] ";
            text += On(0, Form("send@tp $ to (tp + 1) mod # done %d[0] "
                               "%b = recv@tp from (tp - 1) mod # ",
                               {view}));
        } else {
            text += Some(0, Form(Below(2) ? "$ = copy %i " : "%c = copy $ ",
                                 {view})) +
                    On(0, "%e[0] = record ");
        }
        first = e;
        for (unsigned i = 1; i < streams; i++) {
            text += Some(i, Form("wait $ ", {e}));
            if (Below(3) == 0)
                text += Some(i, "wait %e[1] ");
            if (Below(3) == 0)
                text += Some(i, "%z = copy %i ");
            e = Form("%d[$]", {Word(i)});
            if (i + 1 < streams || Below(3) == 0)
                text += Below(3) ? On(i, e + " = record ")
                                 : Some(i, e + " = record ");
        }
        text += Below(8) ? "" : "join fork ";
        for (unsigned i = 1 + Below(3); i > 0; i--)
            text +=
                (Below(3) ? "" : Some(streams - 1, Form("wait $ ", {first}))) +
                Some(streams - 1,
                     Form(Below(3) ? "$ = copy %i " : "%z = copy $ ", {view}));
        return text + End() + end;
    }
    // Stream 1 reads one of two slots while stream 0 receives into the other.
    std::string Pipeline()
    {
        std::string slot = Below(2) ? "%g[j mod 2]" : "%x[j mod 2]";
        std::string to = Below(2) ? Form("%r[$]", {Turning()}) : "%c";

        return Form("for j in 0..# { on stream 0 { $"
                    "if tp == j { broadcast@tp %i root j } "
                    "else { $ = broadcast@tp root j } %d[$] = record } "
                    "on stream 1 { $if tp == j { $ = copy %i } "
                    "else { $ = scale $ by 2 } %e[j] = record } } ",
                    {n_ == 2 || Slip()
                         ? ""
                         : "if j >= " + Near(2) + " { wait %e[j - 2] } ",
                     slot, Slip() ? "0" : "j mod 2",
                     Slip() ? "" : "wait %d[j mod 2] ", to, to, slot});
    }
    // The same without slots, of blocks that may be uneven.
    std::string Broadcasts()
    {
        return Form(
            "for j in 0..# { on stream j mod $ { "
            "if tp == $ { broadcast@tp %o[tp of #] root j } "
            "else { %j[$ of #] = broadcast@tp root j } "
            "if tp == j { %j[j of #] = fill value 1 } "
            "else { %j[j of #] = scale %j[j of #] by 2 } } } ",
            {Word(1 + Below(3)), Slip() ? "0" : "j", Slip() ? "0" : "j"});
    }
    // Blocks go up as far as somebody needs them.
    std::string Causal()
    {
        std::string use = attends_ && Below(2)
                              ? "%m, %s = attention %l, %k[b], %k[b] accumulate"
                          : Below(2) ? "%c = add %c, %t[b]"
                                     : "%c = scale %t[b] by 2";

        return Form("%t[tp] = copy %i %e[0] = record for j in 0..tp + 1 { "
                    "let b = tp - j on stream 0 { wait %e[j] "
                    "group { if tp < $ { send@tp %t[b] to tp + 1 } "
                    "if b > $ { %t[b - 1] = recv@tp from tp - 1 } } "
                    "if b > 0 { %e[j + $] = record } } "
                    "on stream 1 { $$ } } ",
                    {Near(n_ - 1), Near(0), Slip() ? "0" : "1",
                     Slip() ? "" : "wait %e[j] ", use});
    }
    std::string Stages()
    {
        return Form("for j in 0..$ { on stream 0 { "
                    "if tp > 0 { %x[j mod 2] = recv@tp from tp - 1 } "
                    "else { %x[j mod 2] = copy %i } $"
                    "if tp < $ { send@tp $ to tp + 1 } } } ",
                    {Word(1 + Below(3)), Below(2) ? "" : "} on stream 1 { ",
                     Near(n_ - 1), Below(2) ? "%x[j mod 2]" : "%i"});
    }
    std::string Segment()
    {
        std::string text;

        half_ = Below(2);
        switch (Below(16)) {
        case 0:
        case 1:
        case 2:
            return Handoff();
        case 3:
            return Below(3) ? Pipeline() : Broadcasts();
        case 4:
            return Causal();
        case 5:
            return Below(3) ? On(0, Direct()) : Stages();
        case 6:
            return Steps(0) + Steps(1);
        case 7:
            return On(0, Parts() + (Below(2) ? Parts() : ""));
        case 8:
        case 9:
        case 10:
            return Clocks();
        default:
            text = On(0, Steps(0) + Steps(1));
            half_ = 1 - half_;
            return text + (Below(2) ? On(1, Steps(3)) : "");
        }
    }

    std::mt19937 random_;
    unsigned n_;
    bool two_, slips_, attends_, flat_, sized_;
    unsigned rows_, half_ = 0, names_ = 0;
    int some_ = 0; // blocks around that not all ranks come to
    std::vector<std::string> loops_;
    std::string sent_, arc_[2];
};

#endif
