// What hd_module_info tells, as a value.
#ifndef HD_TESTS_INFO_H
#define HD_TESTS_INFO_H

#include <heddle/heddle.h>

static inline hd_program_info module_info(const hd_module *module)
{
    hd_program_info info = HD_EMPTY(hd_program_info);

    hd_module_info(module, &info);
    return info;
}

#endif
