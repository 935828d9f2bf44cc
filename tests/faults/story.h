// What ranks of which one is at fault go through, and what they have to say.
#ifndef HD_TESTS_FAULTS_STORY_H
#define HD_TESTS_FAULTS_STORY_H

#include <vector>

#include <heddle/async.h>

#include "tests/clock.h"
#include "tests/faults/programs.h"
#include "tests/faults/ranks.h"
#include "tests/faults/sweep.h"

const int kRanks = 3;
const double kPatience = 60; // seconds, which nobody may need
// The others may wait in vain for whoever cannot make its group.
const double kPatienceForGroups = 8;

// What one rank went through: the first status that was not HD_OK, and where.
struct Story {
    hd_status status = HD_OK;
    const char *where = "";
    bool touched = false;            // an out-parameter, though the call failed
    bool silent = false;             // it failed without a word
    hd_status again = HD_ERROR_PEER; // of a second session after a failed one
};

template <typename Type> Type *Sentinel()
{
    static char place;

    return reinterpret_cast<Type *>(&place);
}

inline bool Fails(Story *story, const char *where, hd_status status,
                  const hd_diag *diag)
{
    if (status == HD_OK)
        return false;
    story->status = status;
    story->where = where;
    story->silent = hd_diag_errors(diag) == 0;
    return true;
}

// The shards of a rank, filled with small integers, outputs with rubbish.
struct Shards {
    std::vector<std::vector<float>> local;
    std::vector<std::vector<float>> before;
    std::vector<void *> pointer;
    hd_event *event = nullptr;

    Shards(const hd_module *module, int rank)
    {
        hd_argument argument = HD_EMPTY(hd_argument);

        for (size_t i = 0; hd_module_argument(module, i, &argument); i++) {
            local.emplace_back(argument.local_elements);
            for (size_t k = 0; k < local[i].size(); k++)
                local[i][k] = static_cast<float>(
                    (5 * k + i + static_cast<size_t>(rank)) % 7);
        }
        for (size_t i = 0; hd_module_argument(module, i, &argument); i++) {
            if (argument.dtype == HD_DTYPE_EVENT)
                event = hd_event_create();
            pointer.push_back(argument.dtype == HD_DTYPE_EVENT
                                  ? static_cast<void *>(event)
                                  : static_cast<void *>(local[i].data()));
        }
        if (event != nullptr)
            hd_event_record(event);
        before = local;
    }
    ~Shards()
    {
        hd_event_destroy(event);
    }
    bool InputsAreAsBefore(const hd_module *module) const
    {
        hd_argument argument = HD_EMPTY(hd_argument);
        bool same = true;

        for (size_t i = 0; hd_module_argument(module, i, &argument); i++)
            if (argument.role == HD_ROLE_IN && argument.dtype != HD_DTYPE_EVENT)
                same &= local[i] == before[i];
        return same;
    }
};

inline bool IsNews(hd_status status)
{
    return status == HD_ERROR_PEER || status == HD_ERROR_TIMEOUT;
}

inline hd_status Wanted(int kinds)
{
    return (kinds & FAULT_MEMORY) != 0 ? HD_ERROR_NO_MEMORY : HD_ERROR_SYSTEM;
}

#endif
