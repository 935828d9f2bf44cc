// The C locale, made once. The C library has it ready and hands out what is
// there, so that it cannot fail for want of memory, and nobody frees it.
#include "base/locale.h"

#include <pthread.h>

static locale_t c_locale;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

locale_t hd_locale_enter(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_c_locale);
    return uselocale(c_locale);
}

void hd_locale_leave(locale_t before)
{
    uselocale(before);
}
