/* A rank takes a GPU of its own part of the machine. If the GPUs are not spread over the NUMA nodes as the ranks are,
 * or their places are unknown, ranks take GPUs in order. */
#include "device/cuda/cuda_choice.hpp"

#include <cstddef>
#include <set>
#include <vector>

int ndp_gpu_of_rank(int rank, int ranks, const int *nodes, int gpus) {
    std::set<int> parts(nodes, nodes + gpus);
    int n = (int)parts.size(), in_order = rank % gpus, k = 0, mine = -1;
    if (n < 2 || parts.count(-1) || ranks % n != 0)
        return in_order;
    int each = ranks / n;
    for (int part : parts) {
        std::vector<int> near;
        for (int i = 0; i < gpus; i++)
            if (nodes[i] == part)
                near.push_back(i);
        if ((int)near.size() < each && ranks <= gpus)
            return in_order; /* some ranks of this part would share a GPU */
        if (k++ == rank / each)
            mine = near[(std::size_t)(rank % each) % near.size()];
    }
    return mine;
}
