"""zigzag_gathered.py RANKS [backward]: attention over a sequence in zigzag whose
keys and values are gathered and put into the order of the sequence, of the
arguments of attention_zigzag.hd and attention_zigzag_backward.hd."""

import sys

ranks = int(sys.argv[1])
backward = len(sys.argv) > 2
chunk = 4
rows = {"q": "bf16", "o": "f32", "do": "bf16", "dq": "f32"}
keys = {"k": "bf16", "v": "bf16", "dk": "f32", "dv": "f32"}
ins = ["q", "k", "v"] + (["o", "lse", "do"] if backward else [])
outs = ["dq", "dk", "dv"] if backward else ["o", "lse"]


def say(role, name):
    if name == "lse":
        shape = "f32[size cp @cp, 2 * heads, 2 * chunk]"
    elif name in rows:
        shape = rows[name] + "[size cp @cp, 2 * heads, 2 * chunk, 16]"
    else:
        shape = keys[name] + "[size cp @cp, heads, 2 * chunk, 16]"
    print(f"{role} %{name} : {shape}")


print("heddle 2\ntensor program gathered\nparam heads=1")
print(f"param chunk={chunk}\nmesh cp={ranks}")
for name in ins:
    say("in", name)
for name in outs:
    say("out", name)
for x in "kv":
    print(f"temp %{x}g : bf16[size cp, heads, 2 * chunk, 16]")
    print(f"temp %{x}t : bf16[heads, 2 * size cp, chunk, 16]")
    print(f"temp %{x}s : bf16[heads, 2 * size cp * chunk, 16]")
    if backward:
        for part in ("0", "1", ""):
            print(
                f"temp %d{x}s{part} : "
                "f32[size cp @cp, heads, 2 * size cp * chunk, 16]"
            )
        print(f"temp %d{x}t : f32[size cp @cp, heads, 2 * size cp, chunk, 16]")
        print(f"temp %d{x}p : f32[size cp @cp, size cp, heads, 2 * chunk, 16]")
print("{")
halves = (f"0..{chunk}", f"{chunk}..{2 * chunk}")
places = [(i, 0, i) for i in range(ranks)]
places += [(i, 1, 2 * ranks - 1 - i) for i in range(ranks)]
for x in "kv":
    print(f"%{x}g = set %{x}")
    for i, half, at in places:
        print(f"%{x}t[:, {at}] = copy %{x}g[{i}, :, {halves[half]}]")
    print(f"%{x}s = reshape %{x}t")
for half, first in enumerate(("cp", "(2 * size cp - 1 - cp)")):
    h = f"[:, :, {halves[half]}]"
    if backward:
        print(
            f"%dq{h}, %dks{half}, %dvs{half} = attention_grad %q{h}, %ks, %vs, "
            f"%o{h}, %lse{h}, %do{h} causal {first} * chunk"
        )
    else:
        print(f"%o{h}, %lse{h} = attention %q{h}, %ks, %vs causal {first} * chunk")
for x in "kv" if backward else "":
    print(f"%d{x}s = add %d{x}s0, %d{x}s1")
    print(f"%d{x}t = reshape %d{x}s")
    for i, half, at in places:
        print(f"%d{x}p[:, {i}, :, {halves[half]}] = copy %d{x}t[:, :, {at}]")
    print(f"%d{x} = sum %d{x}p dim 0")
print("}")
