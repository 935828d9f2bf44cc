"""The programs behind the operators, as text. Rows are what is sharded: [tp, rows]
of them in all, behind `batch` that every rank has all of."""
from typing import List, NamedTuple, Sequence, Tuple


class Rows(NamedTuple):
    """How an activation of one rank or of all lies: [batch, tp, rows, features]."""
    batch: int
    tp: int
    rows: int

    def dims(self) -> int:
        """How many dimensions it has ahead of the features."""
        return 2 + (self.batch > 1)

    def text(self, mark: str = "", features: int = 0) -> str:
        """Its dimensions, that of the ranks as it is marked."""
        parts = [f"{self.tp}{mark}", str(self.rows), str(features)]
        return ", ".join([str(self.batch)] * (self.batch > 1) + parts)


class Weight(NamedTuple):
    """[k, n], or stored [n, k]."""
    k: int
    n: int
    turned: bool

    def text(self, tp: int, rows: int = 1) -> str:
        """As it is multiplied by an activation of so many dimensions of rows."""
        return (f"{tp}@tp, " + "1, " * (rows - 1) +
                (f"{self.n}, {self.k}" if self.turned else f"{self.k}, {self.n}"))


def program(name: str, tp: int, declared: Sequence[str], done: Sequence[str]) -> str:
    lines = ["heddle 2", f"tensor program {name}", f"mesh tp={tp}", *declared, "{",
             *(f"    {line}" for line in done), "}", ""]
    return "\n".join(lines)


def gather(rows: Rows, weights: Sequence[Weight], k: int, dtype: str, keep: bool) -> str:
    """Rows of all ranks times this rank's columns of each weight. With `keep` all
    rows are a result, the first."""
    tp = rows.tp
    declared = [f"in %x : {dtype}[{rows.text('@tp', k)}]",
                f"{'out' if keep else 'temp'} %g : {dtype}[{rows.text('@stream', k)}]"]
    done = ["%g = set %x"]
    for i, w in enumerate(weights):
        declared += [f"in %w{i} : {dtype}[{w.text(tp)}]",
                     f"out %y{i} : {dtype}[{tp}@tp, {rows.text('@stream', w.n)}]"]
        done.append(f"%y{i} = matmul %g, %w{i}{' tb' * w.turned}")
    return program("all_gather_matmul", tp, declared, done)


def reduce(rows: Rows, weight: Weight, dtype: str, scatter: bool, mark: str = "@stream") -> str:
    """Partial sums of products, scattered by rows or whole on all ranks."""
    tp = rows.tp
    name = "matmul_reduce_scatter" if scatter else "matmul_all_reduce"
    declared = [f"in %x : {dtype}[{tp}@tp, {rows.text('', weight.k)}]",
                f"in %w : {dtype}[{weight.text(tp, rows.dims())}]",
                f"temp %p : {dtype}[{tp}@tp, {rows.text(mark, weight.n)}]",
                f"out %y : {dtype}[{rows.text('@tp' if scatter else '', weight.n)}]"]
    done = [f"%p = matmul %x, %w{' tb' * weight.turned}", "%y = sum %p dim 0"]
    return program(name, tp, declared, done)


def reduce_at_once(rows: Rows, weight: Weight, dtype: str, scatter: bool) -> str:
    """The same of one product, which reads the weight once."""
    return reduce(rows, weight, dtype, scatter, "")


def reduce_whole(tp: int, rows: int, weight: Weight, dtype: str) -> str:
    """As `reduce` to all ranks, of rows that they do not divide: in one piece."""
    declared = [f"in %x : {dtype}[{tp}@tp, {rows}, {weight.k}]",
                f"in %w : {dtype}[{weight.text(tp)}]",
                f"temp %p : {dtype}[{tp}@tp, {rows}, {weight.n}]",
                f"out %y : {dtype}[{rows}, {weight.n}]"]
    done = [f"%p = matmul %x, %w{' tb' * weight.turned}", "%y = sum %p dim 0"]
    return program("matmul_all_reduce", tp, declared, done)


def backward(rows: Rows, weights: Sequence[Weight], k: int, dtype: str, extra: bool,
             wanted: Sequence[bool]) -> str:
    """What flows back through `gather`: partial sums of the rows' gradient are
    scattered, and under that the gradients of the weights that are `wanted` are made
    of all rows that the forward pass has kept. %v and %h are %y's gradient and those
    rows with all rows in one dimension, the same bytes. `extra` is a gradient of the
    gathered rows themselves."""
    tp, whole = rows.tp, rows.batch * rows.tp * rows.rows
    wide = "f64" if dtype == "f64" else "f32"
    alone = len(weights) + extra == 1
    declared, done, terms = [], [], []  # type: Tuple[List[str], List[str], List[str]]
    part = f"{tp}@tp, {rows.text('@stream', k)}"
    for i, w in enumerate(weights):
        declared += [f"in %g{i} : {dtype}[{tp}@tp, {rows.text('', w.n)}]",
                     f"in %w{i} : {dtype}[{w.text(tp, rows.dims())}]",
                     f"temp %p{i} : {dtype if alone else wide}[{part}]"]
        done.append(f"%p{i} = matmul %g{i}, %w{i}{'' if w.turned else ' tb'}")
        terms.append(f"%p{i}")
    if extra:
        declared.append(f"in %e : {dtype}[{tp}@tp, {rows.text('', k)}]")
        terms.append("%e")
    if not alone:
        declared.append(f"temp %s : {wide}[{part}]")
        done.append(f"%s = sum {', '.join(terms)}")
        terms = ["%s"]
        if wide != dtype:
            declared.append(f"temp %p : {dtype}[{part}]")
            done.append("%p = copy %s")
            terms = ["%p"]
    declared.append(f"out %x : {dtype}[{rows.text('@tp', k)}]")
    done.append(f"%x = sum {terms[0]} dim 0")
    if any(wanted):
        declared.append(f"in %h : {dtype}[{tp}@tp, {whole}, {k}]")
    for i, w in enumerate(weights):
        if wanted[i]:
            declared += [f"in %v{i} : {dtype}[{tp}@tp, {whole}, {w.n}]",
                         f"out %d{i} : {dtype}[{w.text(tp)}]"]
            done.append(f"%d{i} = matmul " + (f"%v{i}, %h ta" if w.turned else f"%h, %v{i} ta"))
    return program("all_gather_matmul_backward", tp, declared, done)
