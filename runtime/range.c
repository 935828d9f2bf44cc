// NVTX is a header that looks for a tool at its first call and does nothing
// where there is none. Names are handed to the tool once, when a session is
// created, so that a range costs it a number.
#include "runtime/range.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "ir/module.h"

#ifdef HEDDLE_NVTX

#include <nvtx3/nvToolsExt.h>

// One a process, which is never destroyed: the tool may still write what it was
// told. NVTX's first call must not have others beside it.
static pthread_once_t once = PTHREAD_ONCE_INIT;
static nvtxDomainHandle_t process_domain;

static void create_domain(void)
{
    process_domain = nvtxDomainCreateA("heddle");
}

struct hd_ranges {
    nvtxStringHandle_t run;
    nvtxStringHandle_t *step; // owned, by index
};

static nvtxStringHandle_t name_step(const hd_module *module,
                                    const hd_step *step)
{
    const char *op = hd_op_info_get(step->op->code)->text;
    char text[256];

    if (step->op->loc.line > 0 && module->source.name != NULL)
        snprintf(text, sizeof text, "%s at %s:%u:%u", op, module->source.name,
                 step->op->loc.line, step->op->loc.column);
    else
        snprintf(text, sizeof text, "%s", op);
    return nvtxDomainRegisterStringA(process_domain, text);
}

hd_ranges *hd_ranges_open(const hd_module *module, const hd_steps *steps)
{
    hd_ranges *ranges;
    char text[256];

    pthread_once(&once, create_domain);
    ranges = process_domain != NULL ? calloc(1, sizeof *ranges) : NULL;
    if (ranges == NULL)
        return NULL;
    ranges->step = calloc((size_t)steps->nsteps + 1, sizeof *ranges->step);
    if (ranges->step == NULL) {
        hd_ranges_close(ranges);
        return NULL;
    }
    snprintf(text, sizeof text, "run of %s", module->name);
    ranges->run = nvtxDomainRegisterStringA(process_domain, text);
    for (int64_t i = 0; i < steps->nsteps; i++)
        ranges->step[i] = name_step(module, &steps->step[i]);
    return ranges;
}

void hd_ranges_close(hd_ranges *ranges)
{
    if (ranges != NULL)
        free(ranges->step);
    free(ranges);
}

static void begin(nvtxStringHandle_t name, uint64_t payload)
{
    nvtxEventAttributes_t range = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .payloadType =
                                       NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
                                   .payload.ullValue = payload,
                                   .messageType = NVTX_MESSAGE_TYPE_REGISTERED,
                                   .message.registered = name};

    nvtxDomainRangePushEx(process_domain, &range);
}

void hd_ranges_run(const hd_ranges *ranges, uint64_t run)
{
    if (ranges != NULL)
        begin(ranges->run, run);
}

void hd_ranges_step(const hd_ranges *ranges, const hd_step *step)
{
    if (ranges != NULL)
        begin(ranges->step[step->index], (uint64_t)step->index);
}

void hd_ranges_end(const hd_ranges *ranges)
{
    if (ranges != NULL)
        nvtxDomainRangePop(process_domain);
}

#else // no NVTX headers: no tool ever listens

hd_ranges *hd_ranges_open(const hd_module *module, const hd_steps *steps)
{
    (void)module;
    (void)steps;
    return NULL;
}

void hd_ranges_close(hd_ranges *ranges)
{
    (void)ranges;
}

void hd_ranges_run(const hd_ranges *ranges, uint64_t run)
{
    (void)ranges;
    (void)run;
}

void hd_ranges_step(const hd_ranges *ranges, const hd_step *step)
{
    (void)ranges;
    (void)step;
}

void hd_ranges_end(const hd_ranges *ranges)
{
    (void)ranges;
}

#endif
