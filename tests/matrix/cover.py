"""Covering arrays: rows of levels, a level a factor, in which each choice of levels of
any `strength` factors stands in some row."""
import itertools

CANDIDATES = 6


def wanted(sizes, strength, more):
    """For each choice of factors the choices of levels that no row has yet."""
    chosen = {*itertools.combinations(range(len(sizes)), strength), *more}
    return {factors: set(itertools.product(*(range(sizes[f]) for f in factors)))
            for factors in sorted(chosen)}


def is_new(open_, row, factors):
    return tuple(row[f] for f in factors) in open_[factors]


def gain(open_, row, factor):
    """How many open choices the row closes by what it has at `factor`."""
    return sum(is_new(open_, row, factors) for factors in open_
               if factor in factors and all(f in row for f in factors))


def grow(sizes, open_, random):
    """A row that begins with an open choice and takes what closes most beside it."""
    factors = random.choice([each for each in open_ if open_[each]])
    row = dict(zip(factors, random.choice(sorted(open_[factors]))))
    rest = [f for f in range(len(sizes)) if f not in row]
    random.shuffle(rest)
    for factor in rest:
        levels = random.sample(range(sizes[factor]), sizes[factor])
        row[factor] = max(levels, key=lambda level:
                          gain(open_, {**row, factor: level}, factor))
    return row


def cover(sizes, strength, random, more=()):
    """Rows in which each choice of levels of any `strength` factors stands, and of those in
    `more`, which are several together."""
    open_ = wanted(sizes, strength, more)
    rows = []
    while any(open_.values()):
        grown = [grow(sizes, open_, random) for _ in range(CANDIDATES)]
        row = max(grown, key=lambda row: sum(is_new(open_, row, each) for each in open_))
        for factors in open_:
            open_[factors].discard(tuple(row[f] for f in factors))
        rows.append(tuple(row[f] for f in range(len(sizes))))
    return rows
