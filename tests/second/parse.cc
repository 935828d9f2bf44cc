// The text form, read by recursive descent and printed with a parenthesis too
// many rather than one too few.
#include "tests/second/program.h"

#include <cctype>
#include <set>

namespace second
{

namespace
{

struct Token {
    enum { NAME, BUFFER, NUMBER, STRING, SYMBOL, END } kind;
    std::string text;
};

bool IsWord(char c)
{
    return isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// Where a number that begins at `i` ends. `0..4` is two numbers.
size_t NumberEnd(const std::string &s, size_t i)
{
    bool hex = s.compare(i, 2, "0x") == 0;

    if (hex)
        i += 2;
    while (i < s.size()) {
        bool fraction = s[i] == '.' && i + 1 < s.size() && isdigit(s[i + 1]);
        bool sign = (s[i] == '-' || s[i] == '+') && !hex &&
                    (s[i - 1] == 'e' || s[i - 1] == 'E');

        if (!IsWord(s[i]) && !fraction && !sign)
            break;
        i++;
    }
    return i;
}

std::vector<Token> Lex(const std::string &s)
{
    static const std::set<std::string> doubles = {"..", "==", "!=", "<=", ">="};
    std::vector<Token> tokens;

    for (size_t i = 0; i < s.size();) {
        size_t begin = i;

        if (isspace(static_cast<unsigned char>(s[i]))) {
            i++;
        } else if (s.compare(i, 2, "//") == 0) {
            while (i < s.size() && s[i] != '\n')
                i++;
        } else if (s[i] == '"') {
            i = std::min(s.find('"', i + 1), s.size() - 1) + 1;
            tokens.push_back({Token::STRING, s.substr(begin, i - begin)});
        } else if (isdigit(static_cast<unsigned char>(s[i]))) {
            i = NumberEnd(s, i);
            tokens.push_back({Token::NUMBER, s.substr(begin, i - begin)});
        } else if (IsWord(s[i]) || s[i] == '%') {
            for (i++; i < s.size() && IsWord(s[i]);)
                i++;
            bool buffer = s[begin] == '%';
            tokens.push_back({buffer ? Token::BUFFER : Token::NAME,
                              s.substr(begin + buffer, i - begin - buffer)});
        } else {
            i += doubles.count(s.substr(i, 2)) ? 2 : 1;
            tokens.push_back({Token::SYMBOL, s.substr(begin, i - begin)});
        }
    }
    tokens.push_back({Token::END, ""});
    return tokens;
}

int64_t ToNumber(const std::string &text)
{
    std::string digits;

    for (char c : text)
        if (c != '_')
            digits += c;
    return std::stoll(digits, nullptr, text.compare(0, 2, "0x") == 0 ? 16 : 10);
}

class Parser
{
  public:
    explicit Parser(const std::string &text) : tokens_(Lex(text))
    {
    }
    Program ParseProgram();

  private:
    const Token &Peek() const
    {
        return tokens_[at_];
    }
    bool Is(const std::string &text) const
    {
        return Peek().text == text && Peek().kind != Token::BUFFER &&
               Peek().kind != Token::END;
    }
    bool Take(const std::string &text)
    {
        if (!Is(text))
            return false;
        at_++;
        return true;
    }
    void Expect(const std::string &text)
    {
        if (!Take(text))
            throw Unreadable("expected " + text + ", not " + Peek().text);
    }
    std::string Word(int kind)
    {
        if (Peek().kind != kind)
            throw Unreadable("unexpected " + Peek().text);
        return tokens_[at_++].text;
    }

    Expr ParseExpr(int level = 0);
    Expr ParseUnary();
    Expr ParseReal(int level = 3);
    Decl ParseDecl();
    void ParseOn(Decl *decl);
    View ParseView();
    std::vector<View> ParseViews();
    bool AtKey() const;
    Key ParseKey();
    Stmt ParseStmt();
    void ParseOperands(Stmt *stmt);
    void ParseOp(Stmt *stmt);
    std::vector<Stmt> ParseBlock();

    std::vector<Token> tokens_;
    size_t at_ = 0;
    bool front_ = false; // form 1
};

// Operators from the loosest to the tightest; `not` stands between `and` and
// the comparisons, which do not chain.
const std::vector<std::vector<std::string>> kLevels = {
    {"or"},
    {"and"},
    {"==", "!=", "<", "<=", ">", ">="},
    {"+", "-"},
    {"*", "/", "mod"}};

const std::set<std::string> kFunctions = {"min", "max", "cdiv"};

Expr Parser::ParseExpr(int level)
{
    if (level == 5)
        return ParseUnary();
    if (level == 2 && Take("not")) {
        Expr e;
        e.op = "not";
        e.args = {ParseExpr(2)};
        return e;
    }
    Expr left = ParseExpr(level + 1);
    for (bool more = true; more;) {
        more = false;
        for (const std::string &op : kLevels[static_cast<size_t>(level)])
            if (Take(op)) {
                left = Make(op, left, ParseExpr(level + 1));
                more = level != 2;
                break;
            }
    }
    return left;
}

Expr Parser::ParseUnary()
{
    Expr e;

    if (Take("-")) {
        e.op = "neg";
        e.args = {ParseUnary()};
    } else if (Take("(")) {
        e = ParseExpr();
        Expect(")");
    } else if (Take("size")) {
        e.op = "size";
        e.name = Word(Token::NAME);
    } else if (kFunctions.count(Peek().text) && tokens_[at_ + 1].text == "(") {
        std::string function = Word(Token::NAME);

        Expect("(");
        Expr first = ParseExpr();
        Expect(",");
        e = Make(function, first, ParseExpr());
        Expect(")");
    } else if (Peek().kind == Token::NUMBER) {
        e = Number(ToNumber(Word(Token::NUMBER)));
    } else {
        e = Name(Word(Token::NAME));
    }
    return e;
}

// Sums and products of reals: `/` leaves no remainder.
Expr Parser::ParseReal(int level)
{
    Expr e;

    if (level < 5) {
        e = ParseReal(level + 1);
        while (Is(level == 3 ? "+" : "*") || Is(level == 3 ? "-" : "/")) {
            std::string op = Word(Token::SYMBOL);

            e = Make(op, e, ParseReal(level + 1));
        }
    } else if (Take("-")) {
        e.op = "neg";
        e.args = {ParseReal(5)};
    } else if (Take("(")) {
        e = ParseReal();
        Expect(")");
    } else if (Peek().kind == Token::NUMBER) {
        e.op = "real";
        for (char c : Word(Token::NUMBER))
            e.name += c == '_' ? "" : std::string(1, c);
    } else {
        e = ParseUnary();
    }
    return e;
}

void Parser::ParseOn(Decl *decl)
{
    decl->on = Word(Token::NAME);
    decl->onRange = {ParseExpr(3)};
    if (Take(".."))
        decl->onRange.push_back(ParseExpr(3));
}

Decl Parser::ParseDecl()
{
    Decl decl;

    decl.role = Word(Token::NAME);
    decl.name = Word(Token::BUFFER);
    Expect(":");
    decl.dtype = Word(Token::NAME);
    Expect("[");
    while (!Take("]")) {
        Dim dim;

        dim.extent = ParseExpr(3);
        if (Take("in"))
            dim.blocks = {ParseExpr(3)};
        if (Take("@"))
            dim.mark = Word(Token::NAME);
        if (Take("by"))
            dim.by = Word(Token::BUFFER);
        decl.dims.push_back(dim);
        Take(",");
    }
    for (;;) {
        if (Take("shared"))
            decl.shared = true;
        else if (Take("of"))
            decl.of = Word(Token::BUFFER);
        else if (Take("on"))
            ParseOn(&decl);
        else
            return decl;
    }
}

View Parser::ParseView()
{
    View view;

    view.name = Word(Token::BUFFER);
    if (Take("["))
        while (!Take("]")) {
            Index index;

            index.all = Take(":");
            if (!index.all)
                index.at = ParseExpr();
            if (!index.all && Take(".."))
                index.past = {ParseExpr()};
            else if (!index.all && Take("of"))
                index.of = {ParseExpr(3)};
            view.index.push_back(index);
            Take(",");
        }
    return view;
}

std::vector<View> Parser::ParseViews()
{
    std::vector<View> views;

    if (Peek().kind == Token::BUFFER) {
        views.push_back(ParseView());
        while (Take(","))
            views.push_back(ParseView());
    }
    return views;
}

const std::set<std::string> kFlags = {"ta",  "tb",  "accumulate", "keep",
                                      "max", "min", "get",        "blocks"};
const std::set<std::string> kExprs = {
    "dim",    "dim0",   "dim1",   "over",  "to",    "from", "root", "step",
    "causal", "window", "zigzag", "grain", "start", "row",  "key",  "room"};
const std::set<std::string> kViews = {"bias",  "aux",     "done",
                                      "scale", "scale_a", "by",
                                      "value", "groups",  "scale_b"};

bool Parser::AtKey() const
{
    const std::string &word = Peek().text;

    // `scale` without a value behind it would be the operation, and that has a
    // result on its left: it never begins a statement.
    return Peek().kind == Token::NAME &&
           (kFlags.count(word) || kExprs.count(word) || kViews.count(word) ||
            word == "act" || word == "order");
}

Key Parser::ParseKey()
{
    Key key;

    key.name = Word(Token::NAME);
    if (kExprs.count(key.name)) {
        key.expr = {ParseExpr()};
    } else if (key.name == "order") {
        Expect("(");
        while (!Take(")")) {
            key.expr.push_back(ParseExpr());
            Take(",");
        }
    } else if (key.name == "act") {
        key.word = Word(Token::NAME);
    } else if (kViews.count(key.name)) {
        if (Peek().kind == Token::BUFFER) {
            key.view = {ParseView()};
        } else {
            key.real = {ParseReal()};
        }
    }
    return key;
}

// Numbers may stand among the operands of ops that have a result.
void Parser::ParseOperands(Stmt *stmt)
{
    auto begins = [&] {
        return Peek().kind == Token::BUFFER || Peek().kind == Token::NUMBER ||
               Is("-") || Is("(");
    };

    for (size_t i = 0; begins(); i++) {
        if (Peek().kind == Token::BUFFER)
            stmt->operands.push_back(ParseView());
        else
            stmt->numbers[i] = ParseReal();
        if (!Take(","))
            return;
    }
}

void Parser::ParseOp(Stmt *stmt)
{
    stmt->kind = "op";
    stmt->front = front_;
    stmt->results = ParseViews();
    if (!stmt->results.empty())
        Expect("=");
    stmt->op = Word(Token::NAME);
    if (Take("@"))
        stmt->axis = Word(Token::NAME);
    if (stmt->op == "call")
        stmt->name = Word(Token::STRING);
    // A view after an operation without operands begins the next statement.
    bool none = stmt->op == "record" || stmt->op == "fork" ||
                stmt->op == "join" || stmt->op == "recv";
    if (!none)
        ParseOperands(stmt);
    while (AtKey())
        stmt->keys.push_back(ParseKey());
}

Stmt Parser::ParseStmt()
{
    Stmt stmt;

    if (Take("let")) {
        stmt.kind = "let";
        stmt.name = Word(Token::NAME);
        Expect("=");
        stmt.exprs = {ParseExpr()};
    } else if (Take("for")) {
        stmt.kind = "for";
        stmt.name = Word(Token::NAME);
        Expect("in");
        stmt.exprs = {ParseExpr()};
        Expect("..");
        stmt.exprs.push_back(ParseExpr());
        stmt.body = ParseBlock();
    } else if (Take("if")) {
        stmt.kind = "if";
        stmt.exprs = {ParseExpr()};
        stmt.body = ParseBlock();
        if (Take("else")) {
            if (Is("if"))
                stmt.otherwise = {ParseStmt()};
            else
                stmt.otherwise = ParseBlock();
        }
    } else if (Take("on")) {
        Expect("stream");
        stmt.kind = "stream";
        stmt.exprs = {ParseExpr()};
        stmt.body = ParseBlock();
    } else if (Take("group")) {
        stmt.kind = "group";
        stmt.body = ParseBlock();
    } else if (Take("launch")) {
        stmt.kind = "launch";
        stmt.body = ParseBlock();
    } else {
        ParseOp(&stmt);
    }
    return stmt;
}

std::vector<Stmt> Parser::ParseBlock()
{
    std::vector<Stmt> block;

    Expect("{");
    while (!Take("}"))
        block.push_back(ParseStmt());
    return block;
}

Program Parser::ParseProgram()
{
    Program p;

    Expect("heddle");
    front_ = Take("1");
    if (!front_)
        Expect("2");
    p.form = front_ ? 1 : 2;
    p.level = Word(Token::NAME);
    Expect("program");
    p.name = Word(Token::NAME);
    if (Take("after"))
        p.after = Word(Token::NAME);
    while (Take("param")) {
        std::string name = Word(Token::NAME);

        if (Take("in")) {
            Size size;

            size.name = name;
            size.low = ToNumber(Word(Token::NUMBER));
            Expect("..");
            size.high = size.now = ToNumber(Word(Token::NUMBER));
            p.sizes.push_back(size);
            continue;
        }
        Expect("=");
        int64_t sign = Take("-") ? -1 : 1;
        p.params.push_back({name, sign * ToNumber(Word(Token::NUMBER))});
    }
    if (Take("mesh"))
        do {
            std::string name = Word(Token::NAME);

            Expect("=");
            p.mesh.push_back({name, ParseExpr()});
        } while (Take(","));
    if (Take("streams"))
        p.streams = {ParseExpr()};
    while (!Is("{"))
        p.decls.push_back(ParseDecl());
    p.body = ParseBlock();
    if (Peek().kind != Token::END)
        throw Unreadable("unexpected " + Peek().text);
    return p;
}

// ------------------------------------------------------------------ printing

std::string Text(const Expr &e)
{
    if (e.op == "number")
        return std::to_string(e.number);
    if (e.op == "name" || e.op == "real")
        return e.name;
    if (e.op == "size")
        return "size " + e.name;
    if (e.op == "neg")
        return "(-" + Text(e.args[0]) + ")";
    if (e.op == "not")
        return "(not " + Text(e.args[0]) + ")";
    if (kFunctions.count(e.op))
        return e.op + "(" + Text(e.args[0]) + ", " + Text(e.args[1]) + ")";
    return "(" + Text(e.args[0]) + " " + e.op + " " + Text(e.args[1]) + ")";
}

std::string Text(const Index &index)
{
    std::string text = index.all ? ":" : Text(index.at);

    for (const Expr &past : index.past)
        text += ".." + Text(past);
    for (const Expr &blocks : index.of)
        text += " of " + Text(blocks);
    return text;
}

std::string Text(const View &view)
{
    std::string text;

    for (const Index &index : view.index)
        text += (text.empty() ? "[" : ", ") + Text(index);
    return "%" + view.name + text + (text.empty() ? "" : "]");
}

std::string Text(const std::vector<View> &views)
{
    std::string text;

    for (const View &view : views)
        text += (text.empty() ? "" : ", ") + Text(view);
    return text;
}

std::string Text(const Key &key)
{
    std::string text = " " + key.name;

    for (const Expr &e : key.expr)
        text += " " + Text(e);
    for (const Expr &e : key.real)
        text += " " + Text(e);
    for (const View &view : key.view)
        text += " " + Text(view);
    return text + (key.word.empty() ? "" : " " + key.word);
}

std::string Text(const Decl &decl)
{
    std::string text = decl.role + " %" + decl.name + " : " + decl.dtype + "[";

    for (size_t i = 0; i < decl.dims.size(); i++) {
        const Dim &dim = decl.dims[i];

        text += (i ? ", " : "") + Text(dim.extent);
        for (const Expr &blocks : dim.blocks)
            text += " in " + Text(blocks);
        text += dim.mark.empty() ? "" : "@" + dim.mark;
        text += dim.by.empty() ? "" : " by %" + dim.by;
    }
    text += decl.shared ? "] shared" : "]";
    text += decl.of.empty() ? "" : " of %" + decl.of;
    for (size_t i = 0; i < decl.onRange.size(); i++)
        text += (i ? ".." : " on " + decl.on + " ") + Text(decl.onRange[i]);
    return text;
}

std::string Text(const std::vector<Stmt> &block, const std::string &indent);

std::string Text(const Stmt &s, const std::string &indent)
{
    std::string body = " {\n" + Text(s.body, indent + "    ") + indent + "}";

    if (s.kind == "let")
        return "let " + s.name + " = " + Text(s.exprs[0]);
    if (s.kind == "for")
        return "for " + s.name + " in " + Text(s.exprs[0]) + ".." +
               Text(s.exprs[1]) + body;
    if (s.kind == "stream")
        return "on stream " + Text(s.exprs[0]) + body;
    if (s.kind == "group" || s.kind == "launch")
        return s.kind + body;
    if (s.kind == "if") {
        std::string text = "if " + Text(s.exprs[0]) + body;

        if (!s.otherwise.empty())
            text +=
                " else {\n" + Text(s.otherwise, indent + "    ") + indent + "}";
        return text;
    }
    std::string text = s.results.empty() ? "" : Text(s.results) + " = ";
    text += s.op + (s.axis.empty() ? "" : "@" + s.axis);
    text += s.name.empty() ? "" : " " + s.name;
    size_t n = s.operands.size() + s.numbers.size(), view = 0;
    for (size_t i = 0; i < n; i++) {
        auto number = s.numbers.find(i);

        text += i > 0 ? ", " : " ";
        text += number != s.numbers.end() ? Text(number->second)
                                          : Text(s.operands[view++]);
    }
    for (const Key &key : s.keys)
        text += Text(key);
    return text;
}

std::string Text(const std::vector<Stmt> &block, const std::string &indent)
{
    std::string text;

    for (const Stmt &s : block)
        text += indent + Text(s, indent) + "\n";
    return text;
}

} // namespace

const Key *Stmt::Find(const std::string &key) const
{
    for (const Key &k : keys)
        if (k.name == key)
            return &k;
    return nullptr;
}

Expr Number(int64_t n)
{
    Expr e;

    e.op = "number";
    e.number = n;
    return e;
}

Expr Name(const std::string &name)
{
    Expr e;

    e.op = "name";
    e.name = name;
    return e;
}

Expr Make(const std::string &op, Expr a, Expr b)
{
    Expr e;

    e.op = op;
    e.args = {std::move(a), std::move(b)};
    return e;
}

Program Parse(const std::string &text)
{
    try {
        return Parser(text).ParseProgram();
    } catch (const std::logic_error &error) { // of std::stoll
        throw Unreadable(error.what());
    }
}

std::string Print(const Program &p)
{
    std::string text = "heddle " + std::to_string(p.form) + "\n" + p.level +
                       " program " + p.name;

    if (!p.after.empty())
        text += " after " + p.after;
    text += "\n";
    for (const auto &param : p.params)
        text += "param " + param.first + " = " + std::to_string(param.second) +
                "\n";
    for (const Size &size : p.sizes)
        text += "param " + size.name + " in " + std::to_string(size.low) +
                ".." + std::to_string(size.high) + "\n";
    for (size_t i = 0; i < p.mesh.size(); i++)
        text += (i ? ", " : "mesh ") + p.mesh[i].first + "=" +
                Text(p.mesh[i].second);
    if (!p.mesh.empty())
        text += "\n";
    for (const Expr &e : p.streams)
        text += "streams " + Text(e) + "\n";
    for (const Decl &decl : p.decls)
        text += Text(decl) + "\n";
    return text + "{\n" + Text(p.body, "    ") + "}\n";
}

} // namespace second
