/* Launchers tell a process its rank by environment variables; each launcher has its own. */
#include "comm/launched.h"
#include "comm/node/shm_world.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A positive number in the environment, else 0 (a rank 0 is 0 either way). */
static int env_number(const char *name) {
    const char *text = getenv(name);
    if (!text || !*text)
        return 0;
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    return *end == '\0' && errno == 0 && n > 0 && n <= INT_MAX ? (int)n : 0;
}

bool ndp_launched_on_host(int *ranks) {
    ndp_shm_address a;
    if (!ndp_shm_address_read(getenv(NDP_WORLD), &a))
        return false;
    *ranks = a.ranks;
    return true;
}

/* Only variables that a launcher sets for each rank it starts. Slurm also sets SLURM_NTASKS in a batch script, which is
 * not a rank; SLURM_STEP_NUM_TASKS is set by srun. */
bool ndp_launched(int *ranks) {
    if (ndp_launched_on_host(ranks))
        return true;
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"};
    int n = 0;
    for (int i = 0; i < NDP_COUNT(sizes) && n == 0; i++)
        n = env_number(sizes[i]);
    if (n == 0 && getenv("SLURM_PROCID"))
        n = env_number("SLURM_STEP_NUM_TASKS");
    if (n == 0)
        return false;
    *ranks = n;
    return true;
}

bool ndp_launched_without_pmi(int *tasks) {
    static const char *const known[] = {"PMIX_",          "PMI_",           "PMI2_", "OMPI_COMM_WORLD_",
                                        "OMPI_MCA_pmix=", "MV2_COMM_WORLD_"};
    if (!getenv("SLURM_PROCID") || env_number("SLURM_STEP_NUM_TASKS") < 2)
        return false;
    for (char **e = environ; *e; e++)
        for (int i = 0; i < NDP_COUNT(known); i++)
            if (strncmp(*e, known[i], strlen(known[i])) == 0)
                return false;
    *tasks = env_number("SLURM_STEP_NUM_TASKS");
    return true;
}

int ndp_launched_rank(void) {
    static const char *const places[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"};
    if (ndp_launched_on_host(&(int){0}))
        return env_number(NDP_RANK);
    for (int i = 0; i < NDP_COUNT(places); i++)
        if (getenv(places[i]))
            return env_number(places[i]);
    return 0;
}
