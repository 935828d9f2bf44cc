// Homes whose groups are gone, of whose memory peers have some open: a rank may
// end long before others do. To free it would be undefined, and to wait for
// them might take hours.
#ifndef HD_RUNTIME_CUDA_KEEP_H
#define HD_RUNTIME_CUDA_KEEP_H

#include <stdbool.h>

#include "base/status.h"

HD_BEGIN_DECLS

typedef struct hd_cuda_home hd_cuda_home;

// Of one that has nothing left on its device.
void hd_cuda_home_release(hd_cuda_home *home);
// Takes one over.
void hd_cuda_keep(hd_cuda_home *home);
// Frees of them what nobody has open any more; false if some is left. Any
// thread may call.
bool hd_cuda_keep_look(void);

HD_END_DECLS

#endif
