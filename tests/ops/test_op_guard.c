/* Tests of ops on the device sim with the guard of its memory: a kernel that leaves its operands fails its test. The
 * kernels are those of sim, which get larger operands than there are. Each fault is a run of this program. */
#include "op_test.h"

static const ndp_kernel *inner;
static ndp_op_call larger; /* what is added to the operands */

static ndp_status run_larger(const ndp_op_call *call) {
    ndp_op_call wrong = *call;
    wrong.in[0].rows += larger.in[0].rows;
    wrong.out[0].rows += larger.out[0].rows, wrong.out[0].cols += larger.out[0].cols;
    return inner->run(&wrong);
}

typedef struct fault {
    const char *name;
    const ndp_op *op;
    ndp_view in, out; /* as the test has them */
    int in_rows, out_rows, out_cols;
    const char *words; /* of the test's output; NULL: it passes */
} fault;

#define SEGMENT "Segmentation fault"
static char room[4096];
static const fault faults[] = {
    {"right kernels", &ndp_op_zero, {0}, {room, NDP_U8, 3, 17, 20}, 0, 0, 0, NULL},
    {"a row too many is read",
     &ndp_op_count_valid,
     {room, NDP_I32, 4, 8, 8},
     {room + 512, NDP_I64, 1, 1, 1},
     1,
     0,
     0,
     SEGMENT},
    {"a row too many is written", &ndp_op_zero, {0}, {room, NDP_BF16, 4, 24, 24}, 0, 1, 0, SEGMENT},
    {"a row too many after an odd one", &ndp_op_zero, {0}, {room, NDP_BF16, 5, 17, 17}, 0, 1, 0, SEGMENT},
    {"a byte too many", &ndp_op_zero, {0}, {room, NDP_U8, 1, 64, 64}, 0, 0, 1, SEGMENT},
    {"a byte too many after an odd one",
     &ndp_op_zero,
     {0},
     {room, NDP_U8, 3, 17, 20},
     0,
     0,
     1,
     "zero, operand 0: GPU 0: a kernel or copy wrote outside its memory: byte 57 of the 57 at"},
};

/* In a run of its own: the op with this fault. */
static void run_fault(void **state) {
    const fault *f = *state;
    ndp_device device = *tested();
    const ndp_kernel *kernels[NDP_OP_COUNT];
    memcpy(kernels, device.kernels, sizeof kernels);
    inner = kernels[f->op->id];
    const ndp_kernel wrong = {run_larger, inner->scratch, inner->prepare};
    kernels[f->op->id] = &wrong;
    device.kernels = kernels;
    larger.in[0].rows = f->in_rows, larger.out[0].rows = f->out_rows, larger.out[0].cols = f->out_cols;
    ndp_view in[NDP_OP_MAX_IN] = {f->in}, out[NDP_OP_MAX_OUT] = {f->out};
    run_op(f->op, &(ndp_op_attr){0}, in, out, &device, 1);
    end_of_ops(0); /* while there is the device */
}

static void faults_are_found(void **state) {
    (void)state;
    char command[4200], self[4096] = "", out[8192];
    require_ok(readlink("/proc/self/exe", self, sizeof self - 1) > 0 ? NDP_OK : NDP_EIO);
    for (int i = 0; i < NDP_COUNT(faults); i++) {
        snprintf(command, sizeof command, "'%s' %d 2>&1", self, i);
        FILE *run = popen(command, "r");
        assert_non_null(run);
        size_t n = fread(out, 1, sizeof out - 1, run);
        int code = pclose(run);
        out[n] = 0;
        bool found = code != 0 && (SANITIZED || (faults[i].words && strstr(out, faults[i].words)));
        if (found != (faults[i].words != NULL) || (code != 0 && !faults[i].words))
            fail_msg("%s: exit code %d, and the output is\n%s", faults[i].name, code, out);
    }
}

int main(int argc, char **argv) {
    const ndp_device *sim;
    setenv("NDP_TEST_DEVICE", "sim", 1);
    setenv("NDP_GPU_GUARD", "1", 1);
    if (ndp_device_find("sim", &sim) != NDP_OK) {
        printf("SKIPPED: %s\n", ndp_error_message());
        return 77;
    }
    if (argc > 1) {
        const struct CMUnitTest one[] = {
            {faults[atoi(argv[1])].name, run_fault, NULL, NULL, (void *)&faults[atoi(argv[1])]}};
        return cmocka_run_group_tests(one, NULL, NULL);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(faults_are_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
