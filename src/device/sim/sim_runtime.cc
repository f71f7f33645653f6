/* CUDA's runtime for `sim`: streams that execute what was submitted when they are waited for. So the host, or
 * another stream, that reads a result without waiting finds the memory as it was. With CUDA_LAUNCH_BLOCKING=1 each
 * operation runs at once, as each launch does on a GPU. */
#include "device/sim/sim_runtime.hpp"
#include "device/sim/sim_block.hpp"
#include "device/sim/sim_kernel.hpp"
#include "device/sim/sim_memory.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <unistd.h>
#include <vector>

/* An operation: `run` is called until it returns 1: it has run, or -1: it failed; 0: not yet, a peer in another process
 * has to come first. `after`: one that only waits until that stream has done all below `before`. */
struct Operation {
    std::function<int()> run;
    cudaStream_t after;
    size_t before;
};
/* What a thread of the host works on. `broken`: an operation on one of its streams failed; every later call of it fails
 * with that error. Another thread may have executed the operation, so these are shared. */
struct Host {
    int gpu = 0;
    std::atomic<cudaError_t> last_error{cudaSuccess}, broken{cudaSuccess};
    std::string last_message; /* under the lock of the streams */
};
/* A stream's operations are numbered from 0; those below `done` have run. */
struct ndp_sim_stream {
    std::shared_ptr<Host> owner;
    int gpu;
    std::deque<Operation> waiting;
    size_t done, submitted;
    size_t number = 0; /* of those of its GPU */
    int priority = 0;
};
/* Everything that was submitted to the stream before operation `before`. NULL: never recorded. With times, an operation
 * of the stream writes `*seconds`, which lives as long as one of them. */
struct ndp_sim_event {
    cudaStream_t stream;
    size_t before;
    std::shared_ptr<double> seconds; /* NULL: without times */
};

/* Guards the streams of all threads: ranks that are threads wait for each other's events. Held while operations run. */
static std::recursive_mutex &streams_lock() {
    static std::recursive_mutex lock;
    return lock;
}
using Hold = std::lock_guard<std::recursive_mutex>;

static const std::shared_ptr<Host> &this_thread(void) {
    static thread_local const std::shared_ptr<Host> host = std::make_shared<Host>();
    return host;
}
static Host &me(void) { return *this_thread(); }

static cudaError_t fail_for(Host &h, cudaError_t e, const std::string &message) {
    Hold hold(streams_lock());
    if (h.broken == cudaSuccess)
        h.last_error = e, h.last_message = message;
    return e;
}
static cudaError_t fail(cudaError_t e, const std::string &message) { return fail_for(me(), e, message); }

cudaError_t cudaGetLastError(void) { return me().last_error.exchange(me().broken); }
cudaError_t cudaPeekAtLastError(void) { return me().last_error; }
const char *cudaGetErrorName(cudaError_t e) {
    return e == cudaSuccess                 ? "cudaSuccess"
           : e == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
           : e == cudaErrorLaunchFailure    ? "cudaErrorLaunchFailure"
           : e == cudaErrorNotReady         ? "cudaErrorNotReady"
                                            : "cudaErrorInvalidValue";
}
const char *cudaGetErrorString(cudaError_t e) {
    static thread_local std::string text; /* another thread may write the message */
    Hold hold(streams_lock());
    text = e == cudaSuccess ? "no error" : e == cudaErrorMemoryAllocation ? "out of memory" : me().last_message;
    return text.c_str();
}

/* ---- devices ---- */

cudaError_t cudaDriverGetVersion(int *version) {
    *version = 13000;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }
cudaError_t cudaGetDeviceCount(int *n) {
    const char *wanted = getenv("NDP_SIM_GPUS");
    *n = wanted ? atoi(wanted) : 1;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    int n;
    cudaGetDeviceCount(&n);
    if (device < 0 || device >= n)
        return fail(cudaErrorInvalidValue, "there is no GPU " + std::to_string(device));
    me().gpu = device;
    return me().broken;
}
cudaError_t cudaGetDevice(int *device) {
    *device = me().gpu;
    return cudaSuccess;
}
cudaError_t cudaDeviceReset(void) {
    me().last_error = cudaSuccess;
    me().broken = cudaSuccess;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
    *value = attribute == cudaDevAttrMultiProcessorCount            ? 4
             : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? ndp_sim_shared_of_block()
             : attribute == cudaDevAttrComputeCapabilityMajor       ? 9
                                                                    : 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int) {
    snprintf(id, (size_t)length, "none");
    return cudaSuccess;
}

/* ---- streams ---- */

/* All streams, also those that have been destroyed: events of other threads may still name them. The list lives as long
 * as the process. Under the lock. */
static std::vector<cudaStream_t> &streams() {
    static std::vector<cudaStream_t> *const all = new std::vector<cudaStream_t>;
    return *all;
}

/* Whose operation this thread executes. */
static thread_local Host *running;

/* Memory of GPUs stays open from the first operation that a wait executes to its last one: pages are protected once a
 * wait, not once an operation. Under the lock. */
static std::set<int> &open_gpus() {
    static std::set<int> *const open = new std::set<int>;
    return *open;
}
static void open_memory(int gpu) {
    if (open_gpus().insert(gpu).second)
        ndp_sim_memory_open(gpu);
}
static void close_memory() {
    for (int gpu : open_gpus())
        ndp_sim_memory_close(gpu);
    open_gpus().clear();
}

static void break_owner(const std::string &message) {
    running->broken = fail_for(*running, cudaErrorLaunchFailure, message);
}

/* Executes what the stream's next operation waits for, or if that is done the operation. False: it is not ready.
 * Nothing runs after a failure. */
static bool run_next(cudaStream_t s) {
    const Operation &next = s->waiting.front();
    if (next.after && next.after->done < next.before)
        return !next.after->waiting.empty() && run_next(next.after);
    int ran = 1;
    running = s->owner.get();
    if (!next.after && running->broken == cudaSuccess) {
        open_memory(s->gpu);
        ran = next.run();
    }
    if (ran < 0)
        break_owner("an operation of a library failed");
    if (ran == 0)
        return false;
    s->waiting.pop_front();
    s->done++;
    return true;
}

/* NDP_SIM_SEED: operations of all streams run in any order that their waits allow, as early and as late as chance says.
 * Without it a wait runs only what it needs. */
static uint64_t *chance(void) {
    static uint64_t state = 0;
    static std::string now; /* tests change it */
    const char *seed = getenv("NDP_SIM_SEED");
    if (now != (seed ? seed : "")) {
        now = seed ? seed : "";
        state = now.empty() ? 0 : strtoull(seed, nullptr, 10) * 0x9E3779B97F4A7C15u + 1;
    }
    return state ? &state : nullptr;
}

static size_t pick(uint64_t *state, size_t n) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return (size_t)(*state >> 11) % n;
}

static bool can_run(const ndp_sim_stream *s) {
    return !s->waiting.empty() &&
           (!s->waiting.front().after || s->waiting.front().after->done >= s->waiting.front().before);
}

/* Executes one operation of a stream from number `first` on; false: none can run. */
static bool run_any(size_t first) {
    std::vector<cudaStream_t> &all = streams();
    for (size_t i = 0; i < all.size(); i++) {
        cudaStream_t s = all[(first + i) % all.size()];
        if (can_run(s) && run_next(s))
            return true;
    }
    return false;
}

/* Under the lock: executes one operation of those below `end` of the stream or of what they wait for, or of another
 * stream where none of these is ready. False: nothing can run before a peer in another process goes on. */
static bool advance(cudaStream_t s) {
    uint64_t *state = chance();
    size_t any = streams().empty() ? 0 : state ? pick(state, streams().size()) : 0;
    return (state && pick(state, 4) != 0 && run_any(any)) || run_next(s) || run_any(any);
}

/* ---- streams that run by themselves ---- */

/* CUDA_DEVICE_MAX_CONNECTIONS=K: a thread executes what is submitted, as a GPU does, while the host goes on. The
 * streams of a GPU share K connections in turn, and a connection takes its operations first in, first out: one that has
 * to wait holds up all after it, also those of other streams. 0: not set; then there is a thread from the first
 * operation on that may wait for a peer, so that it also goes on while its host waits elsewhere, and it is slow, so
 * that most operations still run as late as they can. */
static size_t connections(void) {
    static const char *wanted = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    return wanted ? strtoull(wanted, nullptr, 10) : 0;
}

/* The streams of the operations of each connection, in the order of submission. Under the lock. */
static std::map<std::pair<int, size_t>, std::deque<cudaStream_t>> &lines() {
    static auto *const all = new std::map<std::pair<int, size_t>, std::deque<cudaStream_t>>;
    return *all;
}

/* Executes the first operation of each connection that can run. Under the lock. */
static bool run_heads(void) {
    bool ran = connections() == 0 && run_any(0);
    for (auto &[key, line] : lines())
        while (!line.empty() && can_run(line.front()) && run_next(line.front())) {
            line.pop_front();
            ran = true;
        }
    return ran;
}

static void run_by_itself(const std::atomic<bool> *stop) {
    while (!*stop) {
        bool ran;
        {
            Hold hold(streams_lock());
            ran = run_heads();
            close_memory();
        }
        if (!ran)
            usleep(connections() ? 20 : 5000);
    }
}

/* The thread ends with the process, before what it uses. */
struct Runner {
    std::atomic<bool> stop{false};
    std::thread thread{run_by_itself, &stop};
    ~Runner() {
        stop = true;
        thread.join();
    }
};

static void start_runner(void) { static Runner runner; }

/* Under the lock, after an operation of the stream was added. */
static void line_up(cudaStream_t s) {
    if (connections() == 0)
        return;
    lines()[{s->gpu, s->number % connections()}].push_back(s);
    start_runner();
}

static bool is_done(const ndp_sim_stream *s, size_t end) { return s->done >= end || s->waiting.empty(); }

/* Whether the host only waits for its operations. */
static bool by_itself(const ndp_sim_stream *s) { return connections() > 0 && s->number > 0; }

/* Executes the stream's operations below `end`. */
static cudaError_t flush(cudaStream_t s, size_t end) {
    for (;;) {
        std::unique_lock<std::recursive_mutex> hold(streams_lock());
        bool done = is_done(s, end);
        if (!done && !by_itself(s) && advance(s))
            continue;
        close_memory();
        if (done)
            return me().broken;
        hold.unlock();
        usleep(20); /* for a peer, in another process */
    }
}

/* The same, as far as it goes without waiting for others, and not for long. */
static cudaError_t flush_some(cudaStream_t s, size_t end) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point limit = Clock::now() + std::chrono::milliseconds(5);
    Hold hold(streams_lock());
    while (!is_done(s, end) && !by_itself(s) && advance(s) && Clock::now() < limit)
        ;
    close_memory();
    if (is_done(s, end))
        return me().broken;
    return me().broken == cudaSuccess ? cudaErrorNotReady : me().broken.load();
}

/* NDP_SIM_FAIL_AT=N: the Nth submission of the process fails, and so does every later call of that thread, as after an
 * error of the GPU itself (an Xid). NDP_SIM_FAIL_RANK=R: only in the process of that rank. */
static bool fails_now(void) {
    static std::atomic<long> submissions{0};
    const char *at = getenv("NDP_SIM_FAIL_AT"), *wanted = getenv("NDP_SIM_FAIL_RANK"), *rank = getenv("NDP_RANK");
    return at && (!wanted || !rank || strcmp(rank, wanted) == 0) && ++submissions == atol(at);
}

/* NULL is the stream of operations that block the host. */
static cudaError_t submit_when(cudaStream_t s, std::function<int()> op) {
    Hold hold(streams_lock());
    if (fails_now())
        return me().broken = fail(cudaErrorLaunchFailure, "this GPU has failed (NDP_SIM_FAIL_AT)");
    ndp_sim_stream now = {this_thread(), me().gpu, {}, 0, 0};
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    cudaStream_t to = s ? s : &now;
    to->waiting.push_back({std::move(op), nullptr, 0});
    to->submitted++;
    if (s)
        line_up(s);
    uint64_t *state = chance();
    while (s && state && connections() == 0 && pick(state, 4) == 0 &&
           run_any(pick(state, streams().size()))) /* as a GPU may */
        ;
    close_memory();
    return !s || (blocking && *blocking == '1') ? flush(to, to->submitted) : me().broken.load();
}

static cudaError_t submit(cudaStream_t s, std::function<void()> op) {
    return submit_when(s, [op = std::move(op)] {
        op();
        return 1;
    });
}

int ndp_sim_submit_when(void *stream, int (*try_run)(void *user), void *user) {
    start_runner();
    return submit_when((cudaStream_t)stream, [=] { return try_run(user); });
}

void ndp_sim_submit(cudaStream_t s, std::function<void()> op) { submit(s, std::move(op)); }

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0, *greatest = -5;
    return me().broken;
}
cudaError_t cudaStreamGetPriority(cudaStream_t s, int *priority) {
    *priority = s->priority;
    return me().broken;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned, int priority) {
    ndp_sim_count_allocation();
    Hold hold(streams_lock());
    static std::map<int, size_t> made;
    *s = new ndp_sim_stream{this_thread(), me().gpu, {}, 0, 0, ++made[me().gpu], priority};
    streams().push_back(*s);
    return me().broken;
}
/* Operations that wait for a peer stay, and run when it goes on, or never. */
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    Hold hold(streams_lock());
    while (!s->waiting.empty() && !by_itself(s) && advance(s))
        ;
    close_memory();
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return s ? flush(s, s->submitted) : me().broken.load(); }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
    Hold hold(streams_lock());
    ndp_sim_event now = *e; /* what it means at this call */
    if (!now.stream)
        return me().broken;
    s->waiting.push_back({nullptr, now.stream, now.before});
    s->submitted++;
    line_up(s);
    return me().broken;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
    ndp_sim_count_allocation();
    *e = new ndp_sim_event{};
    if (!(flags & cudaEventDisableTiming))
        (*e)->seconds = std::make_shared<double>(0);
    return me().broken;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    delete e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    Hold hold(streams_lock());
    if (e->seconds)
        submit(s, [seconds = e->seconds] {
            auto now = std::chrono::steady_clock::now().time_since_epoch();
            *seconds = std::chrono::duration<double>(now).count();
        });
    e->stream = s, e->before = s->submitted;
    return me().broken;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) { return e->stream ? flush(e->stream, e->before) : me().broken.load(); }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    Hold hold(streams_lock());
    for (cudaEvent_t e : {from, to}) {
        if (!e->seconds || !e->stream)
            return fail(cudaErrorInvalidValue, "an event without times, or one that was never recorded");
        if (e->stream->done < e->before)
            return me().broken != cudaSuccess ? me().broken.load()
                                              : fail(cudaErrorNotReady, "an event that was not reached");
    }
    *ms = (float)(1e3 * (*to->seconds - *from->seconds));
    return me().broken;
}
/* Nothing else executes the stream while the host only asks. */
cudaError_t cudaEventQuery(cudaEvent_t e) { return e->stream ? flush_some(e->stream, e->before) : me().broken.load(); }

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                              cudaMemcpyKind, cudaStream_t s) {
    if (rows > 1 && (to_pitch < width || from_pitch < width))
        return fail(cudaErrorInvalidValue, "a pitch is smaller than the width");
    return submit(s, [=] {
        for (size_t r = 0; r < rows; r++)
            memmove((char *)to + r * to_pitch, (const char *)from + r * from_pitch, width);
    });
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s) {
    return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, s);
}
cudaError_t cudaMemsetAsync(void *data, int byte, size_t bytes, cudaStream_t s) {
    return submit(s, [=] { memset(data, byte, bytes); });
}

/* ---- launches ---- */

cudaError_t ndp_sim_set_shared(const void *kernel, int bytes) {
    if (bytes < 0 || bytes > ndp_sim_shared_of_block())
        return fail(cudaErrorInvalidValue, std::to_string(bytes) + " bytes of shared memory, a block can have " +
                                               std::to_string(ndp_sim_shared_of_block()));
    ndp_sim_allow_shared(kernel, me().gpu, (size_t)bytes);
    return me().broken;
}

cudaError_t ndp_sim_launch(const cudaLaunchConfig_t *c, const void *kernel, std::function<void()> body) {
    unsigned threads = c->blockDim.x * c->blockDim.y * c->blockDim.z;
    size_t blocks = (size_t)c->gridDim.x * c->gridDim.y * c->gridDim.z;
    if (threads == 0 || threads > 1024 || blocks == 0 || c->gridDim.y > 65535 || c->gridDim.z > 65535 ||
        c->gridDim.x > 0x7fffffffu || c->blockDim.z > 64 ||
        c->dynamicSmemBytes > ndp_sim_shared_limit(kernel, me().gpu))
        return fail(cudaErrorInvalidValue, ndp_sim_kernel_name(kernel) + ": a launch of " + std::to_string(blocks) +
                                               " blocks of " + std::to_string(threads) + " threads with " +
                                               std::to_string(c->dynamicSmemBytes) + " bytes of shared memory; " +
                                               std::to_string(ndp_sim_shared_limit(kernel, me().gpu)) + " are allowed");
    if (c->stream && c->stream->gpu != me().gpu)
        return fail(cudaErrorInvalidValue, "the stream is one of another GPU");
    const char *order = getenv("NDP_SIM_ORDER");
    bool down = order && strcmp(order, "down") == 0;
    cudaLaunchConfig_t config = *c;
    return submit(c->stream, [=] {
        std::string wrong = ndp_sim_run(config, body, down);
        if (!wrong.empty())
            break_owner(ndp_sim_kernel_name(kernel) + ", " + wrong);
    });
}
