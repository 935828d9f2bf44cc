// A tensor program: with its marks erased it is one rank's list of steps, but
// that an attention's offset may name coordinates.
#include "tests/second/evaluate.h"

#include "tests/second/compute.h"

namespace second
{

namespace
{

// Each rank's index of the result has offsets of its own.
void FindCoordinates(const Program &program, const Shape &shape, Work *work)
{
    if (work->to.empty())
        return;
    const View &view = work->stmt->results[0];
    const Decl &decl =
        program.decls[static_cast<size_t>(work->to[0].region.decl)];
    int kept = 0;

    for (size_t d = 0; d < decl.dims.size(); d++) {
        bool picked = d < view.index.size() && !view.index[d].all &&
                      view.index[d].past.empty() && view.index[d].of.empty();
        bool marked = false;

        for (const auto &axis : shape.mesh)
            marked |= axis.first == decl.dims[d].mark;
        if (marked && picked)
            work->scope.push_back(
                {decl.dims[d].mark,
                 Evaluate(view.index[d].at, shape, work->scope)});
        else if (marked)
            work->coordinates.push_back({decl.dims[d].mark, kept});
        kept += !picked;
    }
}

bool IsGiven(const Decl &decl)
{
    return (decl.role == "in" || decl.role == "inout") && decl.dtype != "event";
}

} // namespace

std::vector<Scalar> Lost(int64_t n)
{
    Scalar lost;

    if (n > kMostElements)
        throw TooLarge("too many elements");
    lost.lost = true;
    return std::vector<Scalar>(static_cast<size_t>(n), lost);
}

Program Unmarked(const Program &program)
{
    Program bare = program;

    for (Decl &decl : bare.decls)
        for (Dim &dim : decl.dims) {
            dim.mark.clear();
            dim.blocks.clear();
        }
    for (Size &size : bare.sizes)
        size.high = size.now; // no more room than that
    return bare;
}

Arrays EvaluateTensor(const Program &program, const Arrays &given)
{
    Program bare = Unmarked(program);
    Shape shape(bare);
    Memory memory;
    Arrays made;

    for (size_t i = 0; i < bare.decls.size(); i++) {
        int n = static_cast<int>(i);
        const Decl &decl = bare.decls[i];

        memory[n] = Lost(RoomElements(bare, shape, 0, n));
        if (IsGiven(decl))
            memory[n] = given.at(decl.name);
    }
    for (Step &step : Unroll(bare, shape, 0))
        for (Work &work : step.work) {
            FindCoordinates(program, shape, &work);
            Compute(work, shape, &memory);
        }
    for (size_t i = 0; i < bare.decls.size(); i++)
        if (bare.decls[i].role == "out" || bare.decls[i].role == "inout")
            made[bare.decls[i].name] = memory[static_cast<int>(i)];
    return made;
}

} // namespace second
