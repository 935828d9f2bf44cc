#include "tests/second/families.h"

namespace second
{

void Choices::Rewind()
{
    for (Kind *kind : {&fixed_, &edited_, &spelt_})
        kind->next = 0;
}

int Choices::Pick(Kind *kind, int n, bool drawn)
{
    if (kind->next == kind->value.size()) {
        kind->value.push_back(
            drawn ? static_cast<int>(random_() % static_cast<unsigned>(n)) : 0);
        kind->of.push_back(n);
    }
    // Behind a change other choices may be asked for.
    return kind->value[kind->next++] % n;
}

bool Choices::Change()
{
    if (edited_.value.empty())
        return false;
    size_t i = random_() % edited_.value.size();
    int n = edited_.of[i];

    if (n < 2)
        return false;
    edited_.value[i] =
        (edited_.value[i] + 1 + static_cast<int>(random_() % (n - 1U))) % n;
    return true;
}

void Choices::Respell()
{
    for (size_t i = 0; i < spelt_.value.size(); i++)
        spelt_.value[i] = static_cast<int>(random_() % spelt_.of[i]);
}

namespace
{

using Text = std::string;

Text T(int n)
{
    return std::to_string(n);
}

Text Of(int i, const std::vector<Text> &words)
{
    return words.at(static_cast<size_t>(i));
}

Text Folding(int i)
{
    return Of(i, {"sum", "max", "min"});
}

Text Begin(const Text &mesh)
{
    return "heddle 2 tensor program t" +
           (mesh.empty() ? mesh : " mesh " + mesh) + " ";
}

// An element-wise operation from %from to %to, beside %z.
Text Mapped(Choices *c, const Text &to, const Text &from)
{
    Text way = Of(c->Edit(7),
                  {"exp %F", "neg %F", "scale %F by 2.0", "scale %F by 1 / 2",
                   "add %F, %z", "mul %F, %z", "tanh %F"});

    way.replace(way.find('F'), 1, from);
    return "%" + to + " = " + way + " ";
}

// ------------------------------------------------------------------- counts

// Who counts the rows of a temporary: one buffer, the other, nobody, or what is
// made of both.
Text By(int who)
{
    return Of(who, {" by %n", " by %m", "", " by %o"});
}

// Rows and keys of an attention, and their counts.
Pair CountedAttention(Choices *c, const Text &batch, int cap)
{
    Text rows = By(c->Edit(3)), keys = By(c->Edit(3)), cp = T(cap);
    Text shape = "[" + batch + "1, " + cp;
    Text text = "temp %qc : f32" + shape + rows + ", 2] temp %kc : f32" +
                shape + keys + ", 2] out %o : f32" + shape +
                ", 2] out %l : f32" + shape + "] { %qc = copy %q " +
                "%kc = copy %k %o, %l = attention %qc, %kc, " +
                Of(c->Edit(2), {"%kc", "%k"});

    if (c->Edit(2))
        text += " causal " + T(c->Edit(3));
    return {"in %q : f32" + shape + ", 2] in %k : f32" + shape + ", 2] " +
                text + " }",
            ""};
}

// What becomes of counted rows: a dense tensor, or one that is folded.
Text CountedEnd(Choices *c, const Text &batch, int dims, const Text &cp,
                const Text &by)
{
    int end = c->Fix(dims > 0 ? 6 : 5);
    Text x = "[" + batch;

    if (end == 5)
        return "out %y : f32[" + cp + ", 2] { %y = " + Folding(c->Edit(3)) +
               " %d dim 0 ";
    if (end == 0)
        return "out %y : f32" + x + "2] { %y = " + Folding(c->Edit(3)) +
               " %d dim " + T(dims) + " ";
    if (end == 1)
        return "temp %r : f32" + x + cp + by + "] out %y : f32" + x + cp +
               "] { %r = " + Folding(c->Edit(3)) + " %d dim " + T(dims + 1) +
               " %y = copy %r ";
    if (end == 2)
        return "out %y : f32" + x + cp + ", 2] { %y = copy %d ";
    if (end == 3)
        return "in %w : f32" + x + "2, 3] in %b : f32[3] temp %p : f32" + x +
               cp + by + ", 3] out %y : f32" + x +
               "3] { %p = matmul %d, %w scale " +
               Of(c->Edit(2), {"1.0", "2.0"}) +
               Of(c->Edit(3), {"", " bias %b", " bias %b act relu"}) +
               " %y = " + Folding(c->Edit(3)) + " %p dim " + T(dims) + " ";
    return "out %y : f32" + x + "2, 2] { %y = matmul %d, " +
           Of(c->Edit(2), {"%x", "%z"}) + " ta ";
}

// Rows that go to other ranks with their counts.
Pair Moved(Choices *c)
{
    Text by = By(c->Edit(3)), cp = T(1 + c->Fix(4));
    Text counts = by.empty() ? "" : by.substr(by.size() - 1);
    Text there = counts.empty() ? "" : " by %c";
    Text text = Begin("ep=2") +
                "in %n : i32[2@ep, 2] in %m : i32[2@ep, 2] in %x : f32[2@ep, "
                "2, " +
                cp + ", 2] temp %c : i32[2, 2@ep] temp %h : f32[2@ep, 2, " +
                cp + by + ", 2] temp %y : f32[2, 2@ep, " + cp + there +
                ", 2] out %s : f32[2, 2@ep, 2] { %c = set %" +
                (counts.empty() ? "n" : counts) + " %h = copy %x %y = set %h ";

    return {text + "%s = " + Folding(c->Edit(3)) + " %y dim 2 }", ""};
}

// Rows by the experts that they want, with as many as these got.
Pair Routed(Choices *c)
{
    Text cp = T(1 + c->Fix(3)), tokens = T(1 + c->Fix(4));
    Text by = By(c->Edit(3));
    Text text = Begin("") + "in %e : i32[" + tokens + ", 2] in %f : i32[" +
                tokens + ", 2] in %x : f32[" + tokens +
                ", 2] temp %t : i32[2, " + cp + "] temp %s : i32[" + tokens +
                ", 2] temp %n : i32[2] temp %u : i32[2, " + cp +
                "] temp %v : i32[" + tokens +
                ", 2] temp %m : i32[2] temp %r : f32[2, " + cp +
                ", 2] temp %h : f32[2, " + cp + by +
                ", 2] out %y : f32[2, 2] { %t, %s, %n = route %e %u, %v, %m = "
                "route %f %r = take %x, " +
                Of(c->Edit(2), {"%t", "%u"}) + " dim 0 ";

    return {text + "%h = " + Of(c->Edit(2), {"exp", "copy"}) +
                " %r %y = " + Folding(c->Edit(3)) + " %h dim 1 }",
            ""};
}

// Products, or attention, of rows in groups.
Pair Grouped(Choices *c)
{
    Text rows = T(1 + c->Fix(5)), by = Of(c->Edit(2), {"%n", "%m"});
    Text text = Begin("") + "in %n : i32[3] in %m : i32[3] in %x : f32[" +
                rows + ", 2] in %g : f32[" + rows + ", 2] ";

    if (c->Fix(2))
        return {text + "out %y : f32[3, 2, 2] { %y = matmul %x, %g ta groups " +
                    by + " }",
                ""};
    return {text + "in %w : f32[3, 2, 2] in %b : f32[3, 2] inout %y : f32[" +
                rows + ", 2] { %y = matmul %x, %w" +
                Of(c->Edit(2), {"", " tb"}) + " groups " + by +
                Of(c->Edit(3), {"", " bias %b", " bias %b[1]"}) +
                Of(c->Edit(3), {"", " keep", " accumulate"}) + " }",
            ""};
}

Pair Counts(Choices *c)
{
    int other = c->Fix(8);

    if (other < 3)
        return other == 0 ? Moved(c) : other == 1 ? Routed(c) : Grouped(c);
    // No batch, one on each rank whole, or one over ranks.
    int placed = c->Fix(4), size = placed == 3 ? 2 + c->Fix(2) : 1 + c->Fix(4);
    int cap = 1 + c->Fix(2) * c->Fix(5), dims = placed > 0;
    Text batch = placed == 0 ? "" : T(size) + (placed == 3 ? "@ep, " : ", ");
    Text counts =
        "[" + (batch.empty() ? batch : batch.substr(0, batch.size() - 2)) + "]";
    Text begin = Begin(placed == 3 ? "ep=2" : "") + "in %n : i32" + counts +
                 " in %m : i32" + counts + " ";

    if (dims && c->Fix(4) == 0) {
        Pair pair = CountedAttention(c, batch, cap);
        return {begin + pair.tensor, ""};
    }
    int counters = c->Fix(3) == 0 ? 4 : 3;
    Text by = By(c->Edit(counters)), again = By(c->Edit(counters));
    Text cp = T(cap), made;
    if (counters == 4) {
        begin += "temp %o : i32" + counts + " ";
        made = Of(c->Edit(3),
                  {"%o = min %n, %m", "%o = max %n, %m", "%o = copy %n"});
    }
    Text dense = " : f32[" + batch + cp + ", 2] ";
    auto counted = [&](const Text &who) {
        return " : f32[" + batch + cp + who + ", 2] ";
    };
    bool recount = c->Fix(2), reshapes = !recount && c->Fix(3) == 0;
    Text last = recount ? again : by;
    Text text = begin + "in %x" + dense + "in %z" + dense + "temp %c" +
                counted(by) + "temp %e" + counted(by) + "temp %f" + dense +
                "temp %d" + counted(last);
    if (reshapes)
        text += "temp %q : f32[" + batch + cp + by + ", 2, 1] ";
    Text end = CountedEnd(c, batch, dims, cp, last);
    size_t body = end.find('{');

    text +=
        end.substr(0, body + 1) + made + " %c = copy %x " + Mapped(c, "e", "c");
    text += recount    ? "%f = copy %e %d = copy %f "
            : reshapes ? "%q = reshape %e %d = reshape %q "
                       : "%d = copy %e ";
    return {text + end.substr(body + 1) + "}", ""};
}

// -------------------------------------------------------------------- sizes

Text SizeM(Choices *c, int high)
{
    return "param m in " + T(c->Fix(2)) + ".." + T(high);
}

// A sum over a dimension of a run's size, before or after something is added:
// which is right of one size at most.
Pair Hoisted(Choices *c, int high)
{
    Text fold = Folding(c->Edit(3)), f = T(high);
    int way = c->Edit(4);
    Text text = "heddle 2 tensor program t " + SizeM(c, high) +
                " in %x : f64[m, 2] in %b : f64[2] temp %h : f64[m, 2] "
                "temp %s : f64[2] temp %t : f64[2] out %y : f64[2] { ";
    if (way < 2)
        text += Of(way, {"%h = add %x, %b ", "%h = mul %x, %b "}) +
                "%y = " + fold + " %h dim 0 ";
    else
        text += "%s = " + fold + " %x dim 0 %t = scale %b by " +
                Of(c->Edit(3), {f, "1.0", "2.0"}) +
                " %y = " + Of(way - 2, {"add", "mul"}) + " %s, %t ";
    return {text + "}", ""};
}

// How many there are, counted or said.
Pair HowMany(Choices *c, int high)
{
    Text text = "heddle 2 tensor program t " + SizeM(c, high) +
                " in %x : f32[m, 2] temp %one : f32[m] out %n : f32[] { ";

    if (c->Edit(2) == 0)
        text += "%one = fill value " + Of(c->Edit(2), {"1.0", "2.0"}) +
                " %n = " + Folding(c->Edit(3)) + " %one dim 0 ";
    else
        text += "%n = fill value " +
                Of(c->Edit(4), {T(high), "1", "2", T(2 * high)}) + " ";
    return {text + "}", ""};
}

// Rows over ranks: the last have fewer, or none. By hand, each rank's own and
// then those of all.
Pair Ranks(Choices *c, int high)
{
    int fold = c->Fix(3), ranks = 2 + c->Fix(3);
    Text own = Folding((fold + c->Slip(3)) % 3);
    Text all = Of((fold + c->Slip(3)) % 3, {"", " max", " min"});
    Text head = " program t " + SizeM(c, high) + " mesh tp=" + T(ranks) +
                " in %x : f32[m@tp, 2] out %s : f32[2] ";
    Text tensor =
        "heddle 2 tensor" + head + "{ %s = " + Folding(fold) + " %x dim 0 }";
    Text host = "heddle 2 host" + head + "temp %t : f32[" + T(ranks) +
                "@tp, 2] shared { %t[tp] = " + own + " %x[tp of " + T(ranks) +
                "] dim 0 %s = all_reduce %t[tp]" + all + " }";

    return {tensor, c->Fix(3) == 0 ? "" : host};
}

// Two blocks of rows, each by itself.
Pair Blocks(Choices *c, int high)
{
    Text head = " program t " + SizeM(c, high) +
                " in %x : f64[m in 2, 2] in %z : f64[m in 2, 2] "
                "in %w : f64[2, 3] out %y : f64[m in 2, 3] "
                "temp %h : f64[m in 2, 2] ";
    Text way = Of(c->Fix(3), {"add %x", "mul %x", "sub %x"});
    Text text = "heddle 2 tensor" + head + "{ %h = " + way +
                ", %z %y = matmul %h, %w }";
    Text host = "heddle 2 host" + head +
                "{ for i in 0..2 { %h[i of 2] = " + way +
                Of(c->Slip(3), {"[i of 2]", "[0 of 2]", "[1 of 2]"}) + ", %z" +
                Of(c->Slip(3), {"[i of 2]", "[0 of 2]", "[1 of 2]"}) +
                " %y[i of 2] = matmul %h" +
                Of(c->Slip(3), {"[i of 2]", "[0 of 2]", "[1 of 2]"}) + ", %w" +
                Of(c->Slip(2), {"", " scale 2.0"}) + " } }";

    return {text, host};
}

// A mean divides by as many as there are, or by another number.
Pair Mean(Choices *c, int high)
{
    int way = c->Edit(2);
    Text text = "heddle 2 tensor program t " + SizeM(c, high) +
                " in %x : f64[m, 2] temp %one : f64[m, 2] temp %n : f64[2] "
                "temp %s : f64[2] out %y : f64[2] { %s = " +
                Folding(c->Edit(3)) +
                " %x dim 0 %one = fill value 1.0 %n = " + Folding(c->Edit(3)) +
                " %one dim 0 ";

    if (way == 0)
        return {text + "%y = div %s, %n }", ""};
    return {text + "%y = scale %s by " +
                Of(c->Edit(3), {"0.25", "0.5", "1.0"}) + " }",
            ""};
}

// Products that contract what runs are given, and what stands beside them.
Pair Contraction(Choices *c, int high)
{
    bool mesh = c->Fix(2);
    Text m = mesh ? "m@tp" : "m";
    Text head = "heddle 2 tensor program t " + SizeM(c, high) +
                (mesh ? " mesh tp=2 " : " ") + "in %x : f64[" + m +
                ", 2] in %z : f64[" + m +
                ", 2] in %w : f64[2, 2] temp %h : f64[" + m +
                ", 2] out %y : f64[2] { %h = matmul %x, " + "%w" +
                Of(c->Edit(3), {"", " act relu", " scale 3.0"});

    return {head + " %y = " + Folding(c->Edit(3)) + " " +
                Of(c->Edit(3), {"%h", "%x", "%z"}) + " dim 0 }",
            ""};
}

// Gathered from ranks, and what is then taken of it.
Pair Gathered(Choices *c, int high)
{
    Text text = Begin("tp=2");

    text.insert(text.find("mesh"), SizeM(c, high) + " ");
    return {text +
                "in %x : f64[m@tp, 2] in %w : f64[2, 2] temp %g : f64[m, 2] "
                "temp %h : f64[m, 2] temp %k : f64[m@tp, 2] out %y : f64[2] "
                "{ %k = matmul %x, %w" +
                Of(c->Edit(2), {"", " tb"}) + " %g = set " +
                Of(c->Edit(2), {"%k", "%x"}) +
                " %h = " + Of(c->Edit(3), {"exp", "neg", "copy"}) +
                " %g %y = " + Folding(c->Edit(3)) + " %h dim 0 }",
            ""};
}

// Keys of a run, all of them or what a mask leaves, and means of none.
Pair Keys(Choices *c, int high)
{
    Text mask =
        Of(c->Edit(9), {"", " causal 0", " causal 1", " causal 1 window 2",
                        " causal n - m", " causal m - 2", " causal 2 - 2 * m",
                        " causal n - 2 window 2", " causal n - m - 1"});
    Text rows = Of(c->Fix(2), {"m", "2"}), keys = Of(c->Fix(2), {"n", "3"});
    Text text = "heddle 2 tensor program t " + SizeM(c, high) +
                " param n in 0.." + T(1 + c->Fix(3)) + " in %q : f64[1, " +
                rows + ", 2] in %k : f64[1, " + keys + ", 2] in %v : f64[1, " +
                keys + ", 2] in %x : f64[m, n] out %z : f64[m, n] " +
                "temp %l : f64[1, " + rows + "] temp %o : f64[1, " + rows +
                ", 2] out %y : f64[1, 2] { %z = copy %x " +
                "%o, %l = attention %q, %k, " + Of(c->Edit(2), {"%v", "%k"}) +
                mask;

    return {text + " %y = " + Folding(c->Edit(3)) + " %o dim 1 }", ""};
}

// Blocks of keys, each as long as a run says, in a sequence with each rank's
// rows. By hand, each with a mask of its own.
Pair InBlocks(Choices *c, int high)
{
    Text lines = "[2@cp, 1, m, 2] ",
         first = Of(c->Fix(3), {"", "1 + ", "m + "});
    Text back = Of(c->Fix(2), {"m", "2 * m"}), k[2], offset[2];
    Text head = " program t " + SizeM(c, high) + " mesh cp=2 in %q : f64" +
                lines + "in %k : f64" + lines + "in %v : f64" + lines +
                "out %o : f64" + lines +
                "out %l : f64[2@cp, 1, m] "
                "temp %g : f64[2@stream, 1, m, 2]S temp %h : f64[2@stream, 1, "
                "m, 2]S ";
    auto with = [&](const Text &shared) {
        Text text = head;
        for (size_t at; (at = text.find("]S")) != Text::npos;)
            text.replace(at, 2, "]" + shared);
        return text;
    };

    for (int b = 0; b < 2; b++) {
        k[b] = T((b + c->Slip(2)) % 2);
        offset[b] =
            Of(c->Slip(5), {first + "cp * m", first + "cp", first + "m",
                            first + "cp * m + 1", first + "2 * cp * m"}) +
            (b == 0 ? "" : " - " + back);
    }
    return {
        "heddle 2 tensor" + with("") +
            "{ %g = set %k %h = set %v "
            "%o, %l = attention %q, %g, %h blocks causal " +
            first + "cp * m step 0 - " + back + " }",
        "heddle 2 host" + with(" shared") +
            "{ %g = all_gather %k[cp] "
            "%h = all_gather %v[cp] %o[cp], %l[cp] = attention %q[cp], %g[" +
            k[0] + "], %h[" + k[0] + "] causal " + offset[0] +
            " %o[cp], %l[cp] = attention %q[cp], %g[" + k[1] + "], %h[" + k[1] +
            "] accumulate causal " + offset[1] + " }"};
}

Pair Sizes(Choices *c)
{
    int high = 2 + c->Fix(6);

    switch (c->Fix(10)) {
    case 5:
        return Gathered(c, high);
    case 6:
    case 7:
        return Keys(c, high);
    case 8:
        return InBlocks(c, high);
    case 0:
        return Hoisted(c, high);
    case 1:
        return HowMany(c, high);
    case 2:
        return Ranks(c, high);
    case 3:
        return Blocks(c, high);
    case 4:
        return Mean(c, high);
    default:
        return Contraction(c, high);
    }
}

// ---------------------------------------------- masks, offsets and windows

// What may change of an attention's mask.
enum Part { MASK, OFFSET, WINDOW };

// `offset` and `window` as far as the family changes them.
int Kept(Choices *c, bool edited, int n)
{
    return edited ? c->Edit(n) : c->Fix(n);
}

Text MaskOf(Choices *c, Part part, int offset)
{
    int mask = part == MASK     ? c->Edit(4)
               : part == WINDOW ? 2 + c->Fix(2)
                                : 1 + c->Fix(2);
    int e = Kept(c, part == OFFSET, 4) - 1 + offset;
    int window = 1 + Kept(c, part == WINDOW, 4);

    return mask == 0   ? ""
           : mask == 1 ? " causal " + T(e)
           : mask == 2 ? " causal " + T(e) + " window " + T(window)
                       : " window " + T(window);
}

// At once, and of the keys in two parts, the second merged to the first.
Pair InParts(Choices *c, Part part)
{
    int rows = 2 + c->Fix(4), keys = 2 + c->Fix(4), cut = 1 + c->Fix(keys - 1);
    int e = c->Fix(4) - 1, window = c->Fix(2) * (1 + c->Fix(4));
    Text dims = "[1, " + T(keys) + ", 2]", r = T(rows);
    Text head = " program t in %q : f32[1, " + r + ", 2] in %k : f32" + dims +
                " in %v : f32" + dims + " out %o : f32[1, " + r +
                ", 2] out %l : f32[1, " + r + "] ";
    auto mask = [&](int offset, int w) {
        return " causal " + T(offset) + (w > 0 ? " window " + T(w) : Text());
    };
    auto slipped = [&](int value, Part which) {
        int slip = part == which ? c->Slip(3) : 0;

        return value + (slip == 2 ? -1 : slip);
    };
    int e0 = slipped(e, OFFSET), e1 = slipped(e - cut, OFFSET);
    int w0 = window > 0 ? slipped(window, WINDOW) : 0;
    int w1 = window > 0 ? slipped(window, WINDOW) : 0;
    Text first = part == MASK && c->Slip(2) ? "" : mask(e0, w0);
    Text second = part == MASK && c->Slip(2) ? "" : mask(e1, w1);
    Text host = "heddle 2 host" + head + "{ %o, %l = attention %q, %k[:, 0.." +
                T(cut) + "], %v[:, 0.." + T(cut) + "]" + first +
                " %o, %l = attention %q, %k[:, " + T(cut) + ".." + T(keys) +
                "], %v[:, " + T(cut) + ".." + T(keys) + "]" + second +
                " accumulate }";

    return {"heddle 2 tensor" + head + "{ %o, %l = attention %q, %k, %v" +
                mask(e, window) + " }",
            host};
}

// Over ranks, in blocks that come one after the other.
Pair InBlocks(Choices *c, Part part)
{
    int rows = 2 + 2 * c->Fix(2), ranks = 2 + c->Fix(2);
    bool made = c->Fix(2); // keys are made of what comes
    bool packed = c->Fix(3) == 0;
    Text dims = "[" + T(ranks) + "@cp, 1, " + T(rows) + ", 2] ";
    Text blocks = "[" + T(ranks) + "@stream, 1, " + T(rows) + ", 2] ";
    Text text = Begin("cp=" + T(ranks)) + "in %q : f32" + dims + "in %k : f32" +
                dims + "in %v : f32" + dims + "out %o : f32" + dims +
                "out %l : f32[" + T(ranks) + "@cp, 1, " + T(rows) +
                "] temp %kg : f32" + blocks + "temp %vg : f32" + blocks +
                (made ? "temp %kn : f32" + blocks : Text()) +
                (packed ? "in %s : i32[3] " : "") +
                "{ %kg = set %k %vg = set %v " +
                (made ? "%kn = add %kg, %vg %o, %l = attention %q, %kn"
                      : "%o, %l = attention %q, %kg") +
                ", %vg blocks" + (packed ? " groups %s" : "");
    int mask = part == MASK     ? c->Edit(5)
               : part == WINDOW ? 2 + c->Fix(3)
                                : 1 + c->Fix(2);
    Text e = Of(Kept(c, part == OFFSET, 4),
                {"cp * " + T(rows), "cp * " + T(rows) + " + 1",
                 "cp * " + T(rows) + " - 1", "cp"});
    Text step = Of(Kept(c, part == OFFSET, 3),
                   {"", " step 0 - " + T(rows + 1), " step 0 - 1"});

    if (packed && mask != 3)
        text += Of(Kept(c, part == OFFSET, 3),
                   {"", " row cp * " + T(rows),
                    " row (" + T(ranks - 1) + " - cp) * " + T(rows)});
    if (mask == 1 || mask == 2)
        text += " causal " + e + step;
    if (mask == 3)
        text += " zigzag cp";
    if (mask == 2 || mask == 4 || (mask == 3 && part == WINDOW))
        text += " window " + T(1 + Kept(c, part == WINDOW, 5));
    return {text + " }", ""};
}

// All at once, with rows and keys that runs may say, in sequences, or their
// gradients.
Pair AtOnce(Choices *c, Part part)
{
    int how = c->Fix(4), rows = 2 + c->Fix(4), keys = 2 + c->Fix(4);
    bool sized = how == 1, packed = how == 2, grads = how == 3;
    Text r = sized ? "m" : T(rows), k = sized || packed ? r : T(keys);
    Text dims = "[1, 2, " + r + ", 2] ", of_k = "[1, 1, " + k + ", 2] ";
    Text text = Text("heddle 2 tensor program t ") +
                (sized ? "param m in 1.." + T(rows) + " " : "") +
                "in %q : f64" + dims + "in %k : f64" + of_k + "in %v : f64" +
                of_k + (packed ? "in %s : i32[1, 3] " : "");
    Text mask = (packed ? Text(" groups %s") : Text()) + MaskOf(c, part, 0);

    if (!grads)
        return {text + "out %o : f64" + dims + "out %l : f64[1, 2, " + r +
                    "] { %o, %l = attention %q, %k, %v" + mask + " }",
                ""};
    return {text + "in %g : f64" + dims + "temp %o : f64" + dims +
                "temp %l : f64[1, 2, " + r + "] out %dq : f64" + dims +
                "out %dk : f64" + of_k + "out %dv : f64" + of_k +
                "{ %o, %l = attention %q, %k, %v" + mask +
                " %dq, %dk, %dv = attention_grad %q, %k, %v, %o, %l, %g" +
                (c->Fix(2) ? mask : MaskOf(c, part, 0)) + " }",
            ""};
}

Pair Attention(Choices *c, Part part)
{
    switch (c->Fix(3)) {
    case 0:
        return InParts(c, part);
    case 1:
        return InBlocks(c, part);
    default:
        return AtOnce(c, part);
    }
}

Pair Masks(Choices *c)
{
    return Attention(c, MASK);
}

Pair Offsets(Choices *c)
{
    return Attention(c, OFFSET);
}

Pair Windows(Choices *c)
{
    return Attention(c, WINDOW);
}

// --------------------------------------------------------------------- call

// By hand a call may be made of parts of the batch, each by itself.
Pair CallInParts(Choices *c)
{
    int rows = 2 + c->Fix(3), cut = 1 + c->Fix(rows - 1);
    Text head = " program t in %x : f32[" + T(rows) +
                ", 3] in %b : f32[3] "
                "out %y : f32[" +
                T(rows) + ", 3] ";
    Text over = c->Fix(2) ? " over 1" : "";
    auto part = [&](const Text &rows_of) {
        return "%y[" + rows_of + "] = call \"" + Of(c->Slip(2), {"f", "g"}) +
               "\" " +
               Of(c->Slip(3),
                  {"%x[" + rows_of + "], %b", "%b, %x[" + rows_of + "]",
                   "%x[" + rows_of + "]"}) +
               Of(c->Slip(2), {over, over.empty() ? " over 1" : ""}) + " ";
    };

    return {"heddle 2 tensor" + head + "{ %y = call \"f\" %x, %b" + over + " }",
            "heddle 2 host" + head + "{ " + part("0.." + T(cut)) +
                part(T(cut) + ".." + T(rows)) + "}"};
}

// Of rows over ranks, twice, with two results.
Pair Calls(Choices *c)
{
    if (c->Fix(3) == 0)
        return CallInParts(c);
    bool mesh = c->Fix(2), keep = c->Fix(2);
    Text n = mesh ? "2@tp" : "2", dims = "[" + n + ", 3] ";
    Text text = Begin(mesh ? "tp=2" : "") + "in %x : f32" + dims +
                "in %a : f32[3] in %b : f32[3] " + (keep ? "inout" : "out") +
                " %y : f32" + dims + "out %z : f32" + dims + "temp %h : f32" +
                dims + "temp %i : f32" + dims + "{ ";
    auto called = [&](const Text &to, const Text &from) {
        return "%" + to + " = call \"" + Of(c->Edit(2), {"f", "ns::g<int>"}) +
               "\" %" + from + ", " + Of(c->Edit(3), {"%a", "%b", "%a, %b"}) +
               Of(c->Edit(2), {"", " over 1"});
    };

    text += called("h, %i", "x") + " ";
    text += Of(c->Edit(2), {"%z = add %h, %i ", "%z = sub %h, %i "});
    text += called("y", "h") + (keep && c->Edit(2) ? " keep" : "");
    return {text + " }", ""};
}

// ---------------------------------------------------------------- submeshes

// Stages of a pipeline: each has weights of its own, on ranks of its own.
Pair Submeshes(Choices *c)
{
    int ranks = 2 + c->Fix(3), stages = 1 + c->Fix(3);
    bool other = c->Fix(2);
    Text p = T(ranks);
    Text text = Begin("pp=" + p + (other ? ", tp=2" : ""));
    Text rows = other ? "2@tp, 2" : "2", dims = "[" + rows + ", 2]";
    Text decls = "in %x : f32" + dims + " in %w : f32[" + p +
                 "@pp, 2, 2] out %y : f32" + dims + " ",
         body = "{ ";
    Text from = "x";

    for (int s = 0; s < stages; s++) {
        int at = c->Edit(ranks);
        Text to = "h" + T(s), moved = "x" + T(s);

        decls += "temp %" + moved + " : f32" + dims + " on pp " + T(at) +
                 " temp %" + to + " : f32" + dims + " on pp " + T(at) + " ";
        body += "%" + moved + " = set %" + from + " %" + to + " = matmul %" +
                moved + ", %w[" + T(at) + "]" +
                Of(c->Edit(3), {"", " act relu", " scale 2.0"}) + " ";
        from = to;
    }
    if (c->Fix(2)) { // what several ranks have, of where it does not matter
        int low = c->Spell(ranks), past = low + 1 + c->Spell(ranks - low);

        decls += "temp %r : f32" + dims + " on pp " + T(low) + ".." + T(past) +
                 " temp %u : f32" + dims + " on pp " + T(low) + ".." + T(past) +
                 " ";
        body += "%r = set %" + from + " %u = " +
                Of(c->Edit(4), {"exp %r", "neg %r", "tanh %r", "add %r, %r"}) +
                " ";
        from = "u";
    }
    return {text + decls + body + "%y = set %" + from + " }", ""};
}

// -------------------------------------------------------------------- moves

// A tensor of three dimensions of six indices, one of which is over the ranks,
// or none: -1.
struct Placed {
    int n, at;

    Text Type() const
    {
        Text text = "f32[";
        for (int i = 0; i < 3; i++)
            text += (i > 0 ? ", 6" : "6") + Text(i == at ? "@tp" : "");
        return text + "]";
    }
    // A rank's own of %name, or all of it.
    Text Own(const Text &name) const
    {
        Text text = "%" + name + "[";
        for (int i = 0; i < 3; i++)
            text +=
                (i > 0 ? ", " : "") + (i == at ? "tp of " + T(n) : Text(":"));
        return text + "]";
    }
};

// What makes %to of %from where only the placement differs, as a host program
// has it until transfers have their pipelines.
Text MovedFrom(const Text &to, Placed there, const Text &from, Placed here)
{
    Text what = there.Own(to) + " = ";

    if (here.at == there.at)
        return what + "copy " + here.Own(from) + " ";
    if (here.at < 0) // each takes its part
        return what + "copy " + there.Own(from) + " ";
    if (there.at < 0)
        return what + "all_gather " + here.Own(from) + " dim " + T(here.at) +
               " ";
    return what + "all_to_all " + here.Own(from) + " dim0 " + T(there.at) +
           " dim1 " + T(here.at) + " ";
}

// Moves that name dimensions, with a permute between two of them, and sums of
// what ranks have that go to the ranks, or to all.
Pair Moves(Choices *c)
{
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                    {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    int n = 2 + c->Fix(2), sums = c->Fix(2);
    Placed x = {n, c->Fix(4) - 1}, a = {n, c->Fix(4) - 1};
    const int *order = orders[c->Edit(6)];
    Placed b = {n, -1}, y = {n, c->Fix(4) - 1};
    Text fold = Folding(c->Edit(3)), key = fold == "sum" ? "" : " " + fold;
    Text how = " order (" + T(order[0]) + ", " + T(order[1]) + ", " +
               T(order[2]) + ") ";
    Text first = sums ? "in %x : f32[" + T(n) + "@tp, 6, 6, 6] "
                      : "in %x : " + x.Type() + " ";

    for (int i = 0; i < 3 && a.at >= 0; i++)
        b.at = order[i] == a.at ? i : b.at;
    Text text = " mesh tp=" + T(n) + " " + first + "temp %a : " + a.Type() +
                " temp %b : " + b.Type() + " temp %m : " + b.Type() +
                " out %y : " + y.Type() + " { ";
    Text tensor =
        (sums ? "%a = " + fold + " %x dim 0 " : Text("%a = set %x ")) +
        "%b = permute %a" + how;
    Text host = !sums      ? MovedFrom("a", a, "x", x)
                : a.at < 0 ? "%a = all_reduce %x[tp]" + key + " "
                           : a.Own("a") + " = reduce_scatter %x[tp] dim " +
                                 T(a.at) + key + " ";
    Text map =
        Of(c->Edit(4), {"neg %F", "scale %F by 2.0", "exp %F", "abs %F"});
    Text mapped = map, whole = map;

    mapped.replace(map.find("%F"), 2, b.Own("b"));
    whole.replace(map.find("%F"), 2, "%b");
    host += b.Own("b") + " = permute " + a.Own("a") + how + b.Own("m") + " = " +
            mapped + " " + MovedFrom("y", y, "m", b) + "}";
    return {"heddle 2 tensor program t" + text + tensor + "%m = " + whole +
                " %y = set %m }",
            "heddle 2 host program t after " +
                Of(c->Spell(2), {"reshard", "stream"}) + text + host};
}

// Products of what ranks have of the contracted dimension, often unevenly much
// or nothing, which are added up, or of which the greatest are taken.
Pair Parts(Choices *c)
{
    int n = 2 + c->Fix(3), k = 1 + c->Fix(10), rows = 1 + c->Fix(2);
    bool ta = c->Fix(2), tb = c->Fix(2);

    k += k == n; // of one index each a view would lack the dimension
    int holders = (k - 1) / ((k - 1) / n + 1) + 1; // the others have none
    Text many = T(k) + "@tp", m = T(rows), own = "tp of " + T(n);
    Text of_x = ta ? many + ", " + m : m + ", " + many;
    Text of_w = tb ? "2, " + many : many + ", 2";
    Text w = Of(c->Edit(2), {"%w", "%v"}), fold = Folding(c->Edit(3));
    Text keys = Text(ta ? " ta" : "") + (tb ? " tb" : "");
    int biased = c->Edit(3);
    Text bias = Of(biased, {"", " bias %b", " bias %c"});
    Text text = " mesh tp=" + T(n) + " in %x : f32[" + of_x + "] in %w : f32[" +
                of_w + "] in %v : f32[" + of_w +
                "] in %b : f32[2] in %c : f32[" + T(n) + "@tp, " + m +
                ", 2] temp %p : f32[" + T(n) + "@tp, " + m +
                ", 2] out %y : f32[" + m + ", 2] { ";
    Text added = biased == 2 ? " bias %c[tp]" : bias;
    Text made = "%p[tp] = matmul %x[" + Text(ta ? "" : ":, ") + own + "], " +
                w + "[" + (tb ? ":, " : "") + own + "]" + keys + added + " ";
    Text none = Of(biased, {"fill value 0.0", "sum %b", "copy %c[tp]"});

    if (holders < n)
        made = "if tp < " + T(holders) + " { " + made +
               "} else { %p[tp] = " + none + " } ";
    return {"heddle 2 tensor program t" + text + "%p = matmul %x, " + w + keys +
                bias + " %y = " + fold + " %p dim 0 }",
            "heddle 2 host program t after reshard" + text + made +
                "%y = all_reduce %p[tp]" + (fold == "sum" ? "" : " " + fold) +
                " }"};
}

} // namespace

const std::vector<Family> kFamilies = {
    {"counts", Counts, " by %"},      {"sizes", Sizes, "param m"},
    {"masks", Masks, nullptr},        {"offsets", Offsets, nullptr},
    {"windows", Windows, nullptr},    {"call", Calls, nullptr},
    {"submeshes", Submeshes, " on "}, {"moves", Moves, nullptr},
    {"parts", Parts, nullptr}};

} // namespace second
