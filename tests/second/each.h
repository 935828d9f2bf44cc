// Each operation with each of its keys, once at least, in programs that are as
// small as they can be: `heddle 2` stands in front of each.
#ifndef HD_TESTS_SECOND_EACH_H
#define HD_TESTS_SECOND_EACH_H

namespace second
{

const char *const kEach[] = {
    // Copies and folds.
    "tensor program t mesh tp=2 in %x : f32[2@tp, 3] out %y : f32[2, 3] "
    "out %z : f32[6] { %y = set %x %z = reshape %y }",
    "tensor program t in %x : f32[3, 2] out %y : i32[3, 2] out %z : u8[3, 2] "
    "{ %y = copy %x %z = copy %y }",
    "tensor program t in %x : f32[3, 2] in %z : f32[3, 2] out %a : f32[3, 2] "
    "out %b : f32[2] out %c : f32[3] out %d : f32[3, 1] "
    "{ %a = sum %x, %z, %x %b = sum %x dim 0 %c = max %x dim 1 "
    "%d = min %x dim 1 }",
    "tensor program t in %x : i32[3, 2] out %a : i32[2] out %b : i32[3] "
    "{ %a = sum %x dim 0 %b = min %x dim 1 }",
    // What is picked, and by what.
    "tensor program t in %m : u8[3, 2] in %x : f64[3, 2] in %z : f64[2] "
    "out %y : f64[3, 2] { %y = select %m, %x, %z }",
    "tensor program t in %m : u8[3, 2] in %x : bf16[3, 2] in %i : i32[2] "
    "out %y : bf16[3, 2] out %z : f32[3, 2] out %l : u8[3, 2] out %j : i32[2] "
    "{ %y = select %m, -1 / 3, %x %z = sum 0.1, %x, 2 %l = lt %x, 0.1 "
    "%j = sub -2147483648, %i }",
    "tensor program t in %f : f32[1] out %a : f64[2] out %b : i32[2] "
    "{ %a = fill value %f %b = fill value 2.5 }",
    "tensor program t in %x : f64[3, 2] in %i : i32[3] in %f : f32[] "
    "out %a : f64[3, 2] out %b : i32[3] out %c : f64[3, 2] out %d : i32[3] "
    "{ %a = scale %x by 0.3 %b = scale %i by 0.7 %c = scale %x by %f "
    "%d = scale %i by 2.5 }",
    "tensor program t in %x : f32[3, 4, 2] out %y : f32[3, 2, 4] "
    "out %z : f32[2, 4, 3] "
    "{ %y = transpose %x %z = transpose %x dim0 0 dim1 2 }",
    "tensor program t in %x : f32[3, 4, 2] out %y : f32[4, 2, 3] "
    "{ %y = permute %x order (1, 2, 0) }",
    "tensor program t in %x : f32[2, 5, 3] in %i : i32[2, 4] "
    "out %y : f32[2, 4, 3] { %y = take %x, %i dim 1 }",
    "tensor program t in %x : f32[5, 3] in %i : i32[4] out %y : f32[4, 3] "
    "out %j : i32[2, 3] out %k : i64[2, 3] "
    "{ %y = take %x, %i dim 0 start 2 %j = iota dim 0 %k = iota dim 1 start 7 "
    "}",
    "tensor program t in %e : i32[2, 5, 2] out %t : i32[2, 3, 2] "
    "out %s : i32[2, 5, 2] out %n : i32[2, 3] { %t, %s, %n = route %e }",
    "tensor program t in %x : f32[3, 6] out %v : f32[3, 2] out %i : i32[3, 2] "
    "{ %v, %i = top_k %x }",
    // Products.
    "tensor program t in %x : i8[3, 4] in %w : i8[5, 4] in %b : i32[5] "
    "in %s : f32[3, 1] inout %y : i32[3, 5] out %z : f32[3, 5] "
    "{ %y = matmul %x, %w tb bias %b accumulate "
    "%z = matmul %x, %w tb scale 0.5 scale_a %s act relu }",
    "tensor program t in %x : f32[2, 3, 4] in %w : f32[2, 5, 4] in %b : f32[5] "
    "inout %y : f32[2, 3, 5] out %u : f32[2, 3, 5] "
    "{ %y = matmul %x, %w tb scale 0.5 bias %b act gelu aux %u accumulate }",
    "tensor program t in %x : f32[4, 3] in %w : f32[2, 4, 5] in %f : f32[1] "
    "out %y : f32[2, 3, 5] { %y = matmul %x, %w ta scale %f act silu }",
    "tensor program t in %x : f32[3, 7] in %s : f32[3, 3] in %w : f32[5, 7] "
    "in %v : f32[2, 3] in %r : f32[5, 1] out %y : f32[3, 5] out %z : f32[3, 5] "
    "{ %y = matmul %x, %w tb scale_a %s scale_b %v grain 3 "
    "%z = matmul %x, %w tb scale_a %s[:, 0..1] scale_b %r }",
    "tensor program t in %x : f32[7, 3] in %w : f32[3, 3, 2] in %n : i32[3] "
    "inout %y : f32[7, 2] out %u : f32[7, 2] "
    "{ %y = matmul %x, %w act relu aux %u groups %n keep }",
    "tensor program t in %x : f32[7, 3] in %w : f32[3, 2, 3] in %n : i32[3] "
    "in %b : f32[3, 2] out %y : f32[7, 2] out %u : f32[7, 2] "
    "{ %y = matmul %x, %w tb bias %b act relu aux %u groups %n }",
    "tensor program t in %x : f32[7, 3] in %w : f32[3, 2, 3] in %n : i32[3] "
    "in %s : f32[7, 2] in %v : f32[3, 1, 2] in %r : f32[4, 1] in %h : f32[7, "
    "2] "
    "out %y : f32[7, 2] out %z : f32[3, 3, 2] "
    "{ %y = matmul %x, %w tb scale_a %s scale_b %v grain 2 groups %n "
    "%z = matmul %x, %h ta scale_a %r scale_b %h grain 2 groups %n }",
    "tensor program t in %x : f32[7, 3] in %w : f32[7, 2] in %n : i32[3] "
    "inout %y : f32[3, 3, 2] { %y = matmul %x, %w ta scale 2.0 accumulate "
    "groups %n }",
    // Counts.
    "tensor program t in %n : i32[2] in %x : f32[2, 3 by %n, 2] in %b : f32[2] "
    "in %w : f32[2, 2, 4] inout %y : f32[2, 3 by %n, 4] out %s : f32[2, 2] "
    "out %m : f32[2, 3 by %n] out %t : f32[2, 2, 3 by %n] temp %e : f32[2, 3 "
    "by "
    "%n, 2] out %g : f32[2, 2, 2] { %e = add %x, %b %s = max %e dim 1 "
    "%m = min %x dim 2 %y = matmul %e, %w accumulate %g = matmul %e, %x ta "
    "%t = transpose %e }",
    "tensor program t in %n : i32[] in %x : i32[3 by %n, 2] out %s : i32[2] "
    "out %y : f32[3, 2] { %s = min %x dim 0 %y = copy %x }",
    // Attention.
    "tensor program t in %q : f64[2, 4, 3, 2] in %k : f64[2, 2, 4, 2] "
    "in %v : f64[2, 4, 3] in %f : f32[1] inout %o : f64[2, 4, 3, 3] "
    "inout %l : f64[2, 4, 3] { %o, %l = attention %q, %k, %v scale %f causal 0 "
    "window 2 accumulate }",
    "tensor program t mesh cp=2 in %q : f32[2@cp, 1, 2, 2] "
    "in %k : f32[1, 4, 2] out %o : f32[2@cp, 1, 2, 2] out %l : f32[2@cp, 1, 2] "
    "{ %o, %l = attention %q, %k, %k causal cp * 2 }",
    "tensor program t mesh cp=2 in %q : f32[2@cp, 1, 2, 2] "
    "in %k : f32[2, 1, 2, 2] in %v : f32[2, 1, 2, 2] out %o : f32[2@cp, 1, 2, "
    "2] out %l : f32[2@cp, 1, 2] { %o, %l = attention %q, %k, %v blocks "
    "causal cp * 2 + 1 step 0 - 1 }",
    "tensor program t mesh cp=2 in %q : f32[2@cp, 1, 2, 2] "
    "in %k : f32[2, 1, 2, 2] in %v : f32[2, 1, 2, 2] in %g : f32[2@cp, 1, 2, "
    "2] "
    "out %o : f32[2@cp, 1, 2, 2] out %l : f32[2@cp, 1, 2] "
    "out %dq : f32[2@cp, 1, 2, 2] temp %dk : f32[2@cp, 2, 1, 2, 2] "
    "temp %dv : f32[2@cp, 2, 1, 2, 2] out %sk : f32[2, 1, 2, 2] "
    "out %sv : f32[2, 1, 2, 2] { %o, %l = attention %q, %k, %v blocks zigzag "
    "cp %dq, %dk, %dv = attention_grad %q, %k, %v, %o, %l, %g blocks zigzag cp "
    "%sk = sum %dk dim 0 %sv = sum %dv dim 0 }",
    "tensor program t mesh cp=2 in %q : f32[2@cp, 1, 3, 2] "
    "in %k : f32[2, 1, 2, 2] in %v : f32[2, 1, 2, 2] in %g : f32[2@cp, 1, 3, "
    "2] "
    "in %o : f32[2@cp, 1, 3, 2] in %l : f32[2@cp, 1, 3] "
    "inout %dq : f32[2@cp, 1, 3, 2] inout %dk : f32[2@cp, 2, 1, 2, 2] "
    "inout %dv : f32[2@cp, 2, 1, 2, 2] { %dq, %dk, %dv = attention_grad %q, "
    "%k, %v, %o, %l, %g scale 0.3 accumulate blocks causal cp * 3 step 0 - 1 "
    "window 2 }",
    "tensor program t mesh cp=2 in %q : f32[2@cp, 1, 2, 2] "
    "in %k : f32[2, 1, 2, 2] in %v : f32[2, 1, 2, 2] in %g : f32[2@cp, 1, 2, "
    "2] out %o : f32[2@cp, 1, 2, 2] out %l : f32[2@cp, 1, 2] "
    "out %dq : f32[2@cp, 1, 2, 2] out %dk : f32[2@cp, 2, 1, 2, 2] "
    "out %dv : f32[2@cp, 2, 1, 2, 2] { %o, %l = attention %q, %k, %v blocks "
    "window 2 %dq, %dk, %dv = attention_grad %q, %k, %v, %o, %l, %g blocks "
    "window 2 }",
    "tensor program t mesh cp=2 in %q : f32[2@cp, 1, 4, 2] "
    "in %k : f32[2, 1, 4, 2] in %v : f32[2, 1, 4, 2] in %g : f32[2@cp, 1, 4, "
    "2] out %o : f32[2@cp, 1, 4, 2] out %l : f32[2@cp, 1, 4] "
    "out %dq : f32[2@cp, 1, 4, 2] out %dk : f32[2@cp, 2, 1, 4, 2] "
    "out %dv : f32[2@cp, 2, 1, 4, 2] { %o, %l = attention %q, %k, %v blocks "
    "zigzag cp window 3 %dq, %dk, %dv = attention_grad %q, %k, %v, %o, %l, %g "
    "blocks zigzag cp window 3 }",
    "tensor program t in %q : f64[2, 3, 2] in %k : f64[1, 5, 2] "
    "in %v : f64[1, 5, 2] out %o : f64[2, 3, 2] out %l : f64[2, 3] "
    "{ %o, %l = attention %q, %k, %v window 2 }",
    "tensor program t in %q : f64[1, 6, 2] in %n : i32[3] "
    "out %o : f64[1, 6, 2] out %l : f64[1, 6] "
    "{ %o, %l = attention %q, %q, %q groups %n window 2 }",
    "tensor program t in %q : f64[2, 1, 6, 2] in %k : f64[2, 1, 6, 2] "
    "in %v : f64[2, 1, 6, 2] in %n : i32[2, 3] in %g : f64[2, 1, 6, 2] "
    "out %o : f64[2, 1, 6, 2] out %l : f64[2, 1, 6] out %dq : f64[2, 1, 6, 2] "
    "out %dk : f64[2, 1, 6, 2] out %dv : f64[2, 1, 6, 2] "
    "{ %o, %l = attention %q, %k, %v groups %n causal 0 "
    "%dq, %dk, %dv = attention_grad %q, %k, %v, %o, %l, %g groups %n causal 0 "
    "}",
    "tensor program t mesh cp=2 in %q : f64[2@cp, 2, 4, 2] "
    "in %k : f64[2, 1, 4, 2] in %v : f64[2, 1, 4, 2] in %n : i32[3] "
    "in %g : f64[2@cp, 2, 4, 2] out %o : f64[2@cp, 2, 4, 2] "
    "out %l : f64[2@cp, 2, 4] out %dq : f64[2@cp, 2, 4, 2] "
    "out %dk : f64[2@cp, 2, 1, 4, 2] out %dv : f64[2@cp, 2, 1, 4, 2] "
    "out %x : f64[2@cp, 2, 4, 2] out %y : f64[2@cp, 2, 4] "
    "{ %o, %l = attention %q, %k, %v blocks groups %n zigzag cp "
    "%dq, %dk, %dv = attention_grad %q, %k, %v, %o, %l, %g blocks groups %n "
    "zigzag cp window 3 "
    "%x, %y = attention %q, %k, %v blocks groups %n window 3 }",
    "tensor program t mesh cp=2 in %q : f64[2@cp, 1, 3, 2] "
    "in %k : f64[1, 5, 2] in %n : i32[2, 3] in %g : f64[2@cp, 1, 3, 2] "
    "out %o : f64[2@cp, 1, 3, 2] out %l : f64[2@cp, 1, 3] "
    "out %dq : f64[2@cp, 1, 3, 2] out %dk : f64[2@cp, 1, 5, 2] "
    "out %dv : f64[2@cp, 1, 5, 2] temp %m : i32[2@cp, 3] { %m = set %n "
    "%o, %l = attention %q, %k, %k groups %m row 3 * cp + 1 key 1 room 7 "
    "%dq, %dk, %dv = attention_grad %q, %k, %k, %o, %l, %g groups %m "
    "row 3 * cp + 1 key 1 room 7 causal 3 * cp }",
    "tensor program t in %n : i32[2] in %m : i32[2] "
    "in %q : f64[2, 2, 3 by %n, 2] in %k : f64[2, 1, 4 by %m, 2] "
    "in %v : f64[2, 1, 4 by %m, 2] in %g : f64[2, 2, 3, 2] "
    "out %o : f64[2, 2, 3, 2] out %l : f64[2, 2, 3] out %dq : f64[2, 2, 3, 2] "
    "out %dk : f64[2, 1, 4, 2] out %dv : f64[2, 1, 4, 2] "
    "{ %o, %l = attention %q, %k, %v causal 1 %dq, %dk, %dv = attention_grad "
    "%q, %k, %v, %o, %l, %g causal 1 }",
    "tensor program t in %a : f64[1, 3, 2] in %b : f64[1, 3] "
    "in %c : f64[1, 3, 2] in %d : f64[1, 3] out %o : f64[1, 3, 2] "
    "out %l : f64[1, 3] { %o, %l = merge %a, %b, %c, %d }",
    // Transfers.
    "host program t mesh tp=2 streams 1 in %x : f32[3] out %y : f32[3] "
    "out %z : f32[3] temp %r : f32[3] shared temp %s : f32[3] shared "
    "temp %e : event[] { %s = copy %x group { send %x to 1 - tp done %e "
    "%r = recv from 1 - tp } wait %e %y = copy %r "
    "group { send %s to 1 - tp get %z = recv from 1 - tp get } }",
    "host program t mesh tp=3 in %x : f32[3, 2] temp %s : f32[3, 2] shared "
    "temp %g : f32[3, 2] shared temp %t : f32[3, 2] shared out %a : f32[3, 2] "
    "out %b : f32[2] out %c : f32[2] out %d : f32[3, 2] out %e : f32[3, 2] "
    "out %f : f32[3, 2] out %h : f32[3, 2] out %i : f32[3, 2] "
    "{ %s = scale %x by 0.5 %g = all_gather %x[tp] %a = copy %g "
    "%b = reduce_scatter %s %c = reduce_scatter %s max %d = all_reduce %s "
    "%e = all_reduce %s min %t = all_to_all %x %f = copy %t %h = copy %x "
    "%h = reduce %s root 1 min %i = copy %x %i = reduce %s root 2 max }",
    "host program t mesh tp=3 in %x : f32[2] temp %s : f32[2] shared "
    "temp %r : f32[2] shared out %y : f32[2] out %a : f32[2] out %b : f32[2] "
    "{ %s = broadcast %x root 1 %y = copy %s %r = copy %x %a = copy %x "
    "if tp == 0 { %a = reduce %r root 0 } else { reduce %r root 0 } "
    "%b = all_reduce %r max }",
    "host program t streams 2 in %x : f32[2] out %y : f32[2] out %z : f32[2] "
    "temp %e : event[2] { fork on stream 0 { %y = exp %x %e[0] = record } "
    "on stream 1 { wait %e[0] %z = neg %y } join }",
    "host program t mesh tp=2 in %x : f32[2] temp %s : f32[2] shared "
    "out %y : f32[] { %s = copy %x %y = reduce_scatter %s min }",
    "host program t mesh ep=2 in %n : i32[2] in %x : f32[2, 3 by %n, 2] "
    "temp %c : i32[2] shared temp %r : f32[2, 3 by %c, 2] shared "
    "out %y : f32[2, 3, 2] { %c = all_to_all %n %r = all_to_all %x "
    "%y = copy %r }",
    "host program t mesh ep=2 in %n : i32[2] in %x : f32[2, 3 by %n, 2] "
    "temp %r : f32[2, 3, 2] shared out %y : f32[2, 3, 2] "
    "{ %r = all_to_all %x %y = copy %r }",
    // A collective and its product in a launch.
    "host program t mesh tp=2 in %x : f32[3, 2] temp %s : f32[3, 2] shared "
    "temp %g : f32[2, 3, 2] shared in %w : f32[4, 2] out %y : f32[2, 3, 4] "
    "{ %s = copy %x launch { %g = all_gather %s %y = matmul %g, %w tb } }",
    "host program t mesh tp=2 in %x : f32[2, 4, 3] in %w : f32[2, 5, 4] "
    "temp %p : f32[2, 3, 5] shared out %y : f32[3, 5] "
    "{ launch { %p = matmul %x, %w ta tb %y = reduce_scatter %p } }",
};

} // namespace second

#endif
