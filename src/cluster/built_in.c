/* The built-in devices: what vendors state of them, each number with its source.
 *
 * flops are dense: half of what data sheets state "with sparsity". Bandwidths of links are per direction: half of what
 * data sheets state as "bidirectional" or as the sum of both directions. Bytes of memory are what drivers report, which
 * is what a program can have: "80 GB" are 80 GiB less what the driver and ECC keep. NICs are those of the vendor's
 * system with eight of the device, if a comment names it; "assumed" says that no such system exists.
 *
 * Latencies and what a call costs are assumed too, since vendors state none: the tuning tables of NCCL
 * (src/graph/tuning.cc) have 3.4 us for a step over NVLink, 5.7 over PCIe and 14 over a network, synchronisation
 * included, and the launch of a kernel takes a few us. A machine's own are measured.
 *
 * Full names are those of CUDA and HIP, cudaDeviceProp.name. */
#include "cluster/built_in.h"

#include "options/option.h"

#include <stdlib.h>
#include <string.h>

typedef struct built_in {
    const char *name;
    ndp_device_facts facts;
} built_in;

/* Memory as CUDA's totalGlobalMem has it, by the messages of PyTorch that say a GPU's "total capacity": A100 40
 * GB 39.50 GiB (TianheWu/CoSeR issue 10), RTX 4090 23.64 (ali-vilab/VGen issue 104); B200 178.35 (pytorch/ao pull
 * request 4002). Those of the A100 and H100 of 80 GB, 79.1 GiB, of the H200, 139.8, the L40S with ECC, 44.4, and the
 * MI300X, 192, are commonly reported, without a page to cite; boards and drivers differ by 0.3 GiB. */
#define RUNTIME NDP_CUDA_RUNTIME_BYTES /* of the MI300X: assumed to be as CUDA's */

#define FLOPS(fp32, bf16, fp8)                                                                                         \
    { [NDP_RATE_FP32] = fp32, [NDP_RATE_BF16] = bf16, [NDP_RATE_FP8] = fp8 }
#define LINKS(kind, bandwidth, latency, shape)                                                                         \
    { kind, bandwidth, latency, shape }
/* Shares: products, attention, memory; links, NICs. */
#define SHARES(...)                                                                                                    \
    { __VA_ARGS__ }
#define NICS(count, bandwidth, latency, kind)                                                                          \
    { kind, count, bandwidth, latency }

/* PCIe x16: 64 GB/s in both directions with Gen4, 128 with Gen5 (the data sheets of the cards). Latency: one way, to or
 * from the host's memory; the shape adds the other. */
#define PCIE4 LINKS("pcie", 32e9, 3e-6, NDP_LINK_HOST)
#define PCIE5 LINKS("pcie", 64e9, 3e-6, NDP_LINK_HOST)

/* Fitted on published runs of the A100 and the H100 of SXM, and rounded (bench/bench_planner.c, docs/numbers.md); other
 * devices of their kind have the same. No such run has fused attention on the A100: its share is between those of
 * FlashAttention and FlashAttention-2 there (arXiv 2307.08691, section 4.1). Of the MI300X, products are what AMD
 * measures at most in bf16 (rocm.blogs.amd.com, Measuring Max-Achievable FLOPs); its other shares, and those of Ada,
 * are assumed. The L40S has the RTX 4090's chip, twice its rate with sums in FP32, and 350 W for the 4090's 450, which
 * no long product keeps at that rate. */
#define SHARES_A100 SHARES(0.75, 0.42, 0.8, 0.92, 0.85)
#define SHARES_H100 SHARES(0.755, 0.25, 0.84, 0.92, 0.85)
#define SHARES_MI300 SHARES(0.55, 0.35, 0.75, 0.75, 0.85)
#define SHARES_ADA SHARES(0.9, 0.6, 0.9, 0.8, 0.85)
#define SHARES_L40S SHARES(0.7, 0.45, 0.9, 0.8, 0.85)

static const built_in devices[] = {
    /* NVIDIA A100 data sheet (2021): FP32 19.5, BF16 312 TFLOPS (624 with sparsity), no FP8; 40 GB at 1,555 GB/s;
     * NVLink 600 GB/s. A100 white paper: 108 SMs. DGX A100 data sheet (320 GB): 8 x ConnectX-6, 200 Gb/s. */
    {"a100-sxm-40",
     {FLOPS(19.5e12, 312e12, 0), 42.4e9, RUNTIME, 1555e9, 108, 4e-6, LINKS("nvlink", 300e9, 2e-6, NDP_LINK_SWITCH),
      NICS(8, 25e9, 5e-6, "infiniband"), SHARES_A100, "NVIDIA A100-SXM4-40GB"}},
    /* The same data sheet: 80 GB at 2,039 GB/s. DGX A100 data sheet (640 GB): 8 x 200 Gb/s for compute. */
    {"a100-sxm-80",
     {FLOPS(19.5e12, 312e12, 0), 85.0e9, RUNTIME, 2039e9, 108, 4e-6, LINKS("nvlink", 300e9, 2e-6, NDP_LINK_SWITCH),
      NICS(8, 25e9, 5e-6, "infiniband"), SHARES_A100, "NVIDIA A100-SXM4-80GB"}},
    /* The same data sheet, PCIe: 80 GB at 1,935 GB/s; PCIe Gen4 64 GB/s. Bridges between pairs are left out. NICs,
     * assumed: two of 200 Gb/s, one per CPU socket. */
    {"a100-pcie-80",
     {FLOPS(19.5e12, 312e12, 0), 85.0e9, RUNTIME, 1935e9, 108, 4e-6, PCIE4, NICS(2, 25e9, 5e-6, "infiniband"),
      SHARES_A100, "NVIDIA A100 80GB PCIe"}},
    /* NVIDIA H100 white paper, table of SXM5: FP32 66.9, BF16 989.4 and FP8 1978.9 TFLOPS dense, 132 SMs. H100 data
     * sheet: 80 GB at 3.35 TB/s; NVLink 900 GB/s. DGX H100 data sheet: 8 x ConnectX-7, 400 Gb/s. */
    {"h100-sxm",
     {FLOPS(66.9e12, 989.4e12, 1978.9e12), 84.9e9, RUNTIME, 3.35e12, 132, 4e-6,
      LINKS("nvlink", 450e9, 2e-6, NDP_LINK_SWITCH), NICS(8, 50e9, 5e-6, "infiniband"), SHARES_H100,
      "NVIDIA H100 80GB HBM3"}},
    /* The same white paper, PCIe: FP32 51.2, BF16 756, FP8 1513 TFLOPS dense, 114 SMs. H100 PCIe product brief
     * (PB-11133): 80 GB at 2,039 GB/s; PCIe Gen5 128 GB/s. Bridges are left out. NICs, assumed: two of 400 Gb/s, one
     * per CPU socket. */
    {"h100-pcie",
     {FLOPS(51.2e12, 756e12, 1513e12), 84.9e9, RUNTIME, 2039e9, 114, 4e-6, PCIE5, NICS(2, 50e9, 5e-6, "infiniband"),
      SHARES_H100, "NVIDIA H100 PCIe"}},
    /* NVIDIA H200 data sheet, SXM: 141 GB at 4.8 TB/s; NVLink 900 GB/s; rates and SMs of the H100. DGX H200 data sheet:
     * 8 x ConnectX-7, 400 Gb/s. */
    {"h200",
     {FLOPS(66.9e12, 989.4e12, 1978.9e12), 150.1e9, RUNTIME, 4.8e12, 132, 4e-6,
      LINKS("nvlink", 450e9, 2e-6, NDP_LINK_SWITCH), NICS(8, 50e9, 5e-6, "infiniband"), SHARES_H100, "NVIDIA H200"}},
    /* NVIDIA Blackwell data sheet, HGX B200, per GPU: FP32 75 TFLOPS, BF16 4.5 and FP8 9 PFLOPS with sparsity; 180 GB
     * at 7.7 TB/s; NVLink 1.8 TB/s. 148 SMs: what CUDA reports. DGX B200 data sheet: 8 x ConnectX-7, 400 Gb/s. */
    {"b200",
     {FLOPS(75e12, 2.25e15, 4.5e15), 191.5e9, RUNTIME, 7.7e12, 148, 4e-6, LINKS("nvlink", 900e9, 2e-6, NDP_LINK_SWITCH),
      NICS(8, 50e9, 5e-6, "infiniband"), SHARES_H100, "NVIDIA B200"}},
    /* AMD Instinct MI300X data sheet: FP32 163.4, BF16 1307.4, FP8 2614.9 TFLOPS dense; 192 GB at 5.3 TB/s; 304 compute
     * units; 7 Infinity Fabric links of 128 GB/s, one to each other GPU of an MI300X Platform. NICs: one of 400 Gb/s
     * per GPU, as AMD's cluster reference guide has them. */
    {"mi300x",
     {FLOPS(163.4e12, 1307.4e12, 2614.9e12), 206.1e9, RUNTIME, 5.3e12, 304, 6e-6,
      LINKS("infinity-fabric", 448e9, 2e-6, NDP_LINK_MESH), NICS(8, 50e9, 5e-6, "ethernet"), SHARES_MI300,
      "AMD Instinct MI300X"}},
    /* NVIDIA L40S data sheet: FP32 91.6, BF16 362.05, FP8 733 TFLOPS dense; 48 GB at 864 GB/s; PCIe Gen4 64 GB/s;
     * 18,176 CUDA cores of 128 per SM. NICs, assumed: two of 200 Gb/s, one per CPU socket. */
    {"l40s",
     {FLOPS(91.6e12, 362.05e12, 733e12), 47.7e9, RUNTIME, 864e9, 142, 4e-6, PCIE4, NICS(2, 25e9, 5e-6, "ethernet"),
      SHARES_L40S, "NVIDIA L40S"}},
    /* NVIDIA Ada white paper, table of the RTX 4090: FP32 82.6 TFLOPS; tensor cores with sums in FP32, dense: BF16
     * 165.2, FP8 330.3; 24 GB at 1,008 GB/s; 128 SMs; PCIe Gen4. No reference system: a NIC of 10 Gb/s, as workstations
     * have. */
    {"rtx-4090",
     {FLOPS(82.6e12, 165.2e12, 330.3e12), 25.4e9, RUNTIME, 1008e9, 128, 4e-6, PCIE4, NICS(1, 1.25e9, 30e-6, "ethernet"),
      SHARES_ADA, "NVIDIA GeForce RTX 4090"}},
    /* A host's processors: rates, memory and cores are unknown until they are measured. Links, copies through
     * shared memory, and a NIC of 10 Gb/s are assumed: what any server of the last years reaches. */
    {"cpu",
     {FLOPS(0, 0, 0), 0, 0, 0, 0, 0, LINKS("memory", 5e9, 2e-6, NDP_LINK_SWITCH), NICS(1, 1.25e9, 30e-6, "ethernet"),
      SHARES(0, 0, 0, 0, 0), NULL}},
};

const char *ndp_built_in_name(int i) { return i >= 0 && i < NDP_COUNT(devices) ? devices[i].name : NULL; }

const ndp_device_facts *ndp_built_in_device(const char *name) {
    for (int i = 0; i < NDP_COUNT(devices); i++)
        if (strcmp(devices[i].name, name) == 0)
            return &devices[i].facts;
    return NULL;
}

const char *ndp_nearest_device(const char *name, const char *const *others, int n) {
    const char *known[NDP_COUNT(devices) + NDP_MOST_NAMED_DEVICES];
    int count = 0;
    for (; count < NDP_COUNT(devices); count++)
        known[count] = devices[count].name;
    for (int i = 0; i < n && i < NDP_MOST_NAMED_DEVICES; i++)
        known[count++] = others[i];
    return ndp_nearest(name, known, count);
}

void ndp_device_facts_release(ndp_device_facts *f) {
    free(f->links.kind);
    free(f->nics.kind);
    free(f->full_name);
    *f = (ndp_device_facts){0};
}

ndp_status ndp_device_facts_copy(const ndp_device_facts *from, ndp_device_facts *to) {
    *to = *from;
    to->links.kind = to->nics.kind = to->full_name = NULL;
    ndp_status st = ndp_option_copy_text(from->links.kind, &to->links.kind);
    if (st == NDP_OK)
        st = ndp_option_copy_text(from->nics.kind, &to->nics.kind);
    if (st == NDP_OK)
        st = ndp_option_copy_text(from->full_name, &to->full_name);
    if (st != NDP_OK)
        ndp_device_facts_release(to);
    return st;
}
