// Counts of a dimension in the text of a nest's kernel: what they are taken
// for, and who tells of one that does not fit.
#ifndef HD_CODEGEN_COUNTS_H
#define HD_CODEGEN_COUNTS_H

#include "codegen/nest.h"

HD_BEGIN_DECLS

// Behind the addresses of the views: where it is told, and the step's number.
enum { HD_COUNTS_POINTERS = 2 };

// All of them write nothing for a nest without counts. The functions:
// indices_of, which takes a count for what it is, and those of the check.
void hd_counts_functions(const hd_nest *nest, hd_text *text);
// Declares how long the counts' dimensions are, which a run may say: then they
// are sizes of the kernel, from number `from` on.
void hd_counts_sizes(const hd_nest *nest, int from, hd_text *text);
// The statement that checks the counts, beside the loops over the elements.
void hd_counts_check(const hd_nest *nest, hd_text *text);

HD_END_DECLS

#endif
