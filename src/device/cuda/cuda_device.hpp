/* The functions of a CUDA device (device/device.h), for the tables that ops/cuda/ makes of them and its kernels. */
#ifndef NDP_DEVICE_CUDA_CUDA_DEVICE_HPP
#define NDP_DEVICE_CUDA_CUDA_DEVICE_HPP

extern "C" {
#include "device/device.h"
}

ndp_status ndp_gpu_open(const ndp_device *d, const ndp_device_opts *opts, ndp_device_context **out);
void ndp_gpu_close(ndp_device_context *c);
long ndp_gpu_host_waits(void); /* for a queue to drain, of all threads */
long ndp_gpu_opens(void);      /* contexts so far, of all threads */
ndp_status ndp_gpu_memory_map(ndp_device_context *c, size_t bytes, ndp_memory_kind kind, void **out);
void ndp_gpu_memory_unmap(ndp_device_context *c, void *data, size_t bytes, ndp_memory_kind kind);
ndp_status ndp_gpu_queue_create(ndp_device_context *c, ndp_queue **out);
ndp_status ndp_gpu_urgent_queue_create(ndp_device_context *c, ndp_queue **out);
void ndp_gpu_queue_destroy(ndp_queue *q);
ndp_status ndp_gpu_copy(ndp_queue *q, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                        size_t rows);
ndp_status ndp_gpu_mark(ndp_queue *q, ndp_mark *out);
ndp_status ndp_gpu_after(ndp_queue *q, const ndp_mark *mark);
ndp_status ndp_gpu_drain(ndp_queue *q);
ndp_status ndp_gpu_passed(ndp_queue *q, const ndp_mark *mark, bool *out);
ndp_status ndp_gpu_stamp_create(ndp_device_context *c, ndp_stamp *out);
void ndp_gpu_stamp_destroy(ndp_stamp *s);
ndp_status ndp_gpu_stamp(ndp_queue *q, ndp_stamp *s);
ndp_status ndp_gpu_between(ndp_device_context *c, const ndp_stamp *from, const ndp_stamp *to, double *seconds);
ndp_status ndp_gpu_memory(ndp_device_context *c, size_t *free, size_t *total);
void ndp_gpu_full_name(ndp_device_context *c, char text[NDP_DEVICE_NAME]);
void ndp_gpu_bus_id(ndp_device_context *c, char text[NDP_DEVICE_NAME]);
ndp_status ndp_gpu_write_word_on(ndp_queue *q, uint32_t *word, uint32_t value);
void *ndp_gpu_stream(ndp_queue *q);
/* cuda_start.cc, sim_start.cc */
void ndp_cuda_full_name(int gpu, char text[NDP_DEVICE_NAME]);
/* ops/cuda/cuda_rank_sum.cu */
ndp_status ndp_gpu_sum(ndp_queue *q, const ndp_rank_sum *s);

#endif
