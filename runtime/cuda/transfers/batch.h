// A group of transfers while it is planned: the rendezvous of its steps, and
// the words that go with them.
#ifndef HD_RUNTIME_CUDA_TRANSFERS_BATCH_H
#define HD_RUNTIME_CUDA_TRANSFERS_BATCH_H

#include "runtime/cuda/memory/peers.h"
#include "runtime/cuda/transfers/transport.h"

// The words of a slot, and the pair's. The third is for reductions whose result
// peers fetch.
enum { HD_CUDA_READY, HD_CUDA_DONE, HD_CUDA_FETCHED, HD_CUDA_EARLY };

// Words that follow each other on a stream go to the device in one call.
// `after` is the number of commands before this step's, whose words are their
// own.
typedef struct hd_words {
    hd_cuda_plan *plan;
    hd_device *device; // the plan's
    const hd_step *step;
    int stream;
    int after;
    hd_diag *diag;
} hd_words;

// The rendezvous of a group, so that each phase can go through them all.
typedef struct hd_batch_part {
    const hd_step *step;
    hd_rendezvous rendezvous;
} hd_batch_part;

// A result that waits until the peers have read what lies there.
typedef struct hd_landing {
    const hd_step *step;
    hd_cuda_at to, from;
    uint64_t bytes;
} hd_landing;

typedef struct hd_transfers {
    hd_batch_part *part; // owned
    int n, room;
    hd_landing *landing; // owned
    int nlandings, landing_room;
    bool meets; // its kernel tells and awaits its words
} hd_transfers;

// ----------------------------------- cuda/transfers/words.c

// A word at an address, to which a run gives its value.
hd_status hd_cuda_add_word(hd_words *words, int operation, hd_cu_ptr address);
// Writes a word of the peer's slot, and waits for one of ours.
hd_status hd_cuda_signal(hd_words *words, const hd_rendezvous *rendezvous,
                         int which);
hd_status hd_cuda_await_word(hd_words *words, const hd_rendezvous *rendezvous,
                             int which);
// What these write and wait for, for a kernel that does.
hd_cuda_at hd_cuda_their_word(const hd_words *words,
                              const hd_rendezvous *rendezvous, int which);
// What it writes: the run's number, or the tally that has it.
hd_cuda_at hd_cuda_number_at(const hd_device *device);
hd_status hd_cuda_note_wait(hd_words *words, const hd_rendezvous *rendezvous,
                            int which, hd_cuda_at *word);
const hd_cuda_slot *hd_cuda_slot_of(const hd_device *device,
                                    const hd_rendezvous *rendezvous);
// What the peer lets this rank touch.
hd_cuda_at hd_cuda_remote(const hd_device *device,
                          const hd_rendezvous *rendezvous);
hd_status hd_cuda_land(hd_words *words, hd_transfers *batch, hd_cuda_at to,
                       hd_cuda_at from, uint64_t bytes);

// ------------------------------------- cuda/transfers/reduce.c

// Bytes of this rank's memory that the peer of an offer reads.
uint64_t hd_cuda_reads(const hd_device *device, const hd_batch_part *part);
// Whether one kernel reduces and meets the peers by itself.
bool hd_cuda_meets(const hd_device *device, const hd_transfers *batch);
// What reduces the step whose rendezvous begin at `first`.
hd_status hd_cuda_reduce(hd_words *words, hd_transfers *batch, int first);
// The rest of those results that every rank has a share of.
hd_status hd_cuda_fetch_shares(hd_words *words, const hd_transfers *batch);

// Bytes of the window that this rank's share of the step's result takes, or
// those of the peers; 0 if it reduces all of it, or the step does not reduce.
uint64_t hd_cuda_share_bytes(const hd_device *device, const hd_step *step);
// Whether these are the peers', until the step ends: all such steps have one
// place in the window.
bool hd_cuda_is_twoshot(const hd_device *device, const hd_step *step);
// The stream that all reductions stand on, the same for all ranks; else one
// that no step is on.
int hd_cuda_find_reducing(const hd_device *device);

#endif
