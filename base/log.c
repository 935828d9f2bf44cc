// One listener a process, as there is one environment: much of what is told
// belongs to no session.
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include <heddle/environment.h>

static atomic_bool listens;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards the rest
static hd_log_fn *listener;
static void *listener_context;

bool hd_log_on(void)
{
    return atomic_load_explicit(&listens, memory_order_relaxed);
}

void hd_set_log(hd_log_fn *fn, void *context)
{
    pthread_mutex_lock(&lock);
    listener = fn;
    listener_context = context;
    atomic_store_explicit(&listens, fn != NULL, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

void hd_log(hd_severity severity, const char *format, ...)
{
    char text[2048];
    va_list arguments;

    if (!hd_log_on())
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&lock);
    if (listener != NULL)
        listener(listener_context, severity, text);
    pthread_mutex_unlock(&lock);
}
