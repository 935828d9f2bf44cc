// Options of lowering, told apart by their bits of hd_option.
#ifndef HD_IR_OPTIONS_H
#define HD_IR_OPTIONS_H

#include <heddle/heddle.h>

HD_BEGIN_DECLS

// A bit for each option of hd_option in which the two differ.
unsigned hd_options_differ(const hd_lower_options *a,
                           const hd_lower_options *b);

// Makes one of them, a bit, what it is in another.
void hd_options_take(hd_lower_options *options, const hd_lower_options *from,
                     unsigned bit);

// Those that were asked for, without HD_OPTION_CHANGED, in whose place stand
// those that it means.
unsigned hd_options_asked(const hd_lower_options *options);

HD_END_DECLS

#endif
