// What a machine offers, as JSON text: hd_environment and its parts.
#ifndef HD_RUNTIME_ENVIRONMENT_H
#define HD_RUNTIME_ENVIRONMENT_H

#include "base/text.h"
#include "runtime/cuda_api.h"

HD_BEGIN_DECLS

// JSON, a member at a time: `name` is NULL for an element of an array. What
// came before decides about the comma.
void hd_json_open(hd_text *json, const char *name, char bracket);
void hd_json_close(hd_text *json, char bracket);
// NULL is null. Bytes that are no UTF-8 become question marks.
void hd_json_string(hd_text *json, const char *name, const char *value);
void hd_json_number(hd_text *json, const char *name, int64_t value);
void hd_json_flag(hd_text *json, const char *name, bool value);

// The words of the first error, and an empty diag again.
void hd_json_reason(hd_text *json, const char *name, hd_diag *diag);

// The members "cuda", "devices" and "links". Opens the CUDA driver, tries every
// pair of devices, and closes it again.
hd_status hd_environment_cuda(hd_text *json);

// Whether what device `from` puts into the memory of `to`, and what it gets
// from there, arrives. Contexts, a buffer and a stream of each are the
// caller's.
typedef struct hd_p2p_end {
    hd_cu_context context;
    hd_cu_ptr buffer;
    hd_cu_stream stream;
} hd_p2p_end;

typedef struct hd_p2p_probe {
    const hd_cu_api *cu;
    uint32_t *host; // pinned: HD_P2P_WORDS
    uint32_t salt;
    bool stuck; // a copy did not end: nothing may be freed any more
} hd_p2p_probe;

#define HD_P2P_WORDS 65536u // of each buffer

// HD_SYSTEM, with words, if not.
hd_status hd_p2p_verify(hd_p2p_probe *probe, const hd_p2p_end *from,
                        const hd_p2p_end *to, hd_diag *diag);

HD_END_DECLS

#endif
