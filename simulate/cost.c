// A matmul takes as long as its tiles, or as those that fill the processor if
// it has fewer; anything else is bound by the bytes that it reads and writes.
#include "simulate/cost.h"

#include <string.h>

#include "ir/verify.h"

static double view_bytes(const hd_view *view)
{
    hd_type type = hd_view_type(view);

    return (double)hd_type_local_elements(&type) *
           (double)hd_dtype_size(type.dtype);
}

static double all_bytes(const hd_op *op)
{
    double bytes = 0;

    for (int i = 0; i < op->nviews; i++)
        bytes += view_bytes(&op->view[i]);
    return bytes;
}

static double matmul_rate(const hd_machine *machine, hd_dtype dtype)
{
    double rate = machine->matmul[dtype];

    return rate > 0 ? rate : machine->matmul[HD_F32];
}

static double ceil_div(double a, double b)
{
    double quotient = a / b;
    double down = (double)(int64_t)quotient;

    return down < quotient ? down + 1 : down;
}

// What a matmul takes by its products alone, and the share of the processor
// that its tiles fill.
static hd_cost matmul_cost(const hd_machine *machine, const hd_op *op)
{
    hd_type out = hd_view_type(&op->view[0]), a = hd_view_type(&op->view[1]),
            b = hd_view_type(&op->view[2]);
    hd_matmul_shape shape;
    char why[160];
    double tiles, full, rate;

    if (!hd_matmul_shape_of(&out, &a, &b, hd_op_key(op, HD_KEY_TA) != NULL,
                            hd_op_key(op, HD_KEY_TB) != NULL, &shape, why))
        return (hd_cost){0}; // the verifier has refused it
    rate = matmul_rate(machine, a.dtype);
    if (machine->units == 0)
        return (hd_cost){.seconds = 2.0 * (double)shape.m * (double)shape.n *
                                    (double)shape.k * (double)shape.batch /
                                    rate,
                         .width = 1};
    tiles = ceil_div((double)shape.m, machine->tile_m) *
            ceil_div((double)shape.n, machine->tile_n) * (double)shape.batch;
    full = tiles > machine->units ? tiles : machine->units;
    return (hd_cost){.seconds = full * 2.0 * machine->tile_m * machine->tile_n *
                                (double)shape.k / rate,
                     .width = tiles / full};
}

// What keeps the memory busy for half of its time has half of it to spare.
static hd_cost compute_cost(const hd_machine *machine, const hd_op *op)
{
    double bound = all_bytes(op) / machine->memory;
    hd_cost cost = {.width = 1};

    if (hd_op_family(op) == HD_FAMILY_PRODUCT)
        cost = matmul_cost(machine, op);
    if (cost.seconds <= bound)
        cost = (hd_cost){.seconds = bound, .width = 1};
    else if (cost.width < bound / cost.seconds)
        cost.width = bound / cost.seconds;
    cost.seconds += machine->launch;
    return cost;
}

// Received by one rank of n.
static double transfer_bytes(const hd_module *module, const hd_op *op)
{
    double n = (double)module->axis[op->axis].size;
    const hd_view *in = op->ninputs > 0 ? &op->view[op->noutputs] : NULL;
    double bytes = view_bytes(op->noutputs > 0 ? &op->view[0] : in);

    switch (hd_op_move(op)) {
    case HD_MOVE_ALL_GATHER:
    case HD_MOVE_ALL_TO_ALL:
        return bytes * (n - 1) / n;
    case HD_MOVE_REDUCE_SCATTER:
        return bytes * (n - 1);
    case HD_MOVE_ALL_REDUCE:
        return 2 * bytes * (n - 1) / n;
    case HD_MOVE_SEND:
    case HD_MOVE_RECV:
    case HD_MOVE_BROADCAST:
    case HD_MOVE_NONE:
        break;
    }
    return bytes;
}

hd_cost hd_cost_of(const hd_module *module, const hd_machine *machine,
                   const hd_op *op)
{
    if (hd_op_is(op, HD_UNIT_COMPUTE))
        return compute_cost(machine, op);
    if (hd_op_is(op, HD_UNIT_TRANSFER))
        return (hd_cost){.bytes = transfer_bytes(module, op)};
    return (hd_cost){0};
}
