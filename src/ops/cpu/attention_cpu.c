/* The thin first path: the reference loops. */
#include "ops/cpu/attention_cpu.h"

void ndp_attention_cpu(const ndp_op_call *call) { ndp_op_attention.kernel[NDP_BACKEND_REF](call); }
void ndp_attention_bwd_cpu(const ndp_op_call *call) { ndp_op_attention_bwd.kernel[NDP_BACKEND_REF](call); }
size_t ndp_attention_cpu_scratch(const ndp_op_call *s) { return ndp_op_attention.scratch(s, NDP_BACKEND_REF); }
size_t ndp_attention_bwd_cpu_scratch(const ndp_op_call *s) { return ndp_op_attention_bwd.scratch(s, NDP_BACKEND_REF); }
