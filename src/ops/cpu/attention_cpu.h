/* Attention on the cpu backend: what ops/attention.c puts into its tables. */
#ifndef NDP_OPS_CPU_ATTENTION_CPU_H
#define NDP_OPS_CPU_ATTENTION_CPU_H

#include "ops/op.h"

void ndp_attention_cpu(const ndp_op_call *call);
void ndp_attention_bwd_cpu(const ndp_op_call *call);
size_t ndp_attention_cpu_scratch(const ndp_op_call *shapes);
size_t ndp_attention_bwd_cpu_scratch(const ndp_op_call *shapes);

#endif
