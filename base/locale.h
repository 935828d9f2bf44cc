// Numbers in texts have a point, whatever the locale of the process says, which
// is the host's: it may have set one whose numbers have a comma.
#ifndef HD_BASE_LOCALE_H
#define HD_BASE_LOCALE_H

#include <locale.h>

#include "base/status.h"

HD_BEGIN_DECLS

// From here to hd_locale_leave, which takes what this returns, strtod and
// printf of this thread read and write numbers as the C locale has them. Other
// threads notice nothing. It takes no memory, and costs some nanoseconds.
locale_t hd_locale_enter(void);
void hd_locale_leave(locale_t before);

HD_END_DECLS

#endif
