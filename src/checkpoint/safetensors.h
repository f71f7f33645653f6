/* One safetensors file.
 *
 *   8 bytes   length L of the header, little-endian
 *   L bytes   JSON: {"__metadata__": {string: string},
 *                    NAME: {"dtype": "F32", "shape": [..], "data_offsets": [begin, end)}, ..}
 *   the rest  the tensors, row-major and little-endian; offsets count from here
 *
 * Reading: the file is mapped, and everything is checked before it is used. The tensors tile the data exactly, so no
 * offset is out of range and no byte belongs to two tensors or to none. Elements are converted straight from the
 * mapping.
 *
 * Writing: the layout is a function of the list of tensors alone. One rank creates the file at its full size; any
 * number of ranks join and write ranges of elements of their own, without exchanging offsets. */
#ifndef NDP_CHECKPOINT_SAFETENSORS_H
#define NDP_CHECKPOINT_SAFETENSORS_H

#include "base/hash128.h"
#include "tensor/dtype.h"

enum { NDP_TENSOR_DIMS = 8 };

/* A named tensor of a file. */
typedef struct ndp_tensor_spec {
    const char *name;
    ndp_dtype dtype; /* as stored; NDP_DTYPES: a type that cannot be converted (fp8, bool, ...) */
    int ndim;
    int64_t shape[NDP_TENSOR_DIMS];
    const char *as; /* in files the name of another type, whose elements, as large, are moved as they are; or NULL */
} ndp_tensor_spec;

/* Elements of a tensor; -1: an extent is negative, or the product of its shape exceeds int64_t. */
int64_t ndp_tensor_elements(const ndp_tensor_spec *spec);
/* Whether two tensors have the same extents, in the same order. */
bool ndp_tensor_same_shape(const ndp_tensor_spec *a, const ndp_tensor_spec *b);
/* "[512, 64]" into `out` (at least 8 bytes), truncated to fit; returns `out`. */
char *ndp_shape_text(const ndp_tensor_spec *spec, char *out, size_t size);

/* ---- reading ---- */

typedef struct ndp_safetensors ndp_safetensors;

typedef struct ndp_tensor_entry {
    ndp_tensor_spec spec;
    const char *type_name; /* as in the file: "BF16" */
    int64_t elements;
    size_t offset, bytes; /* in the file */
} ndp_tensor_entry;

/* NDP_EFORMAT names the file, the tensor and the numbers; NDP_EIO gives the system's error. */
NDP_API ndp_status ndp_safetensors_open(const char *path, ndp_safetensors **out);
/* The same for bytes in memory, which are borrowed until the close. `what` names them in messages. */
NDP_API ndp_status ndp_safetensors_open_memory(const void *data, size_t size, const char *what, ndp_safetensors **out);
void ndp_safetensors_close(ndp_safetensors *f);

/* NDP_EIO if bytes of the file were lost since it was opened (base/text.h). Call it after reading, before use. */
NDP_API ndp_status ndp_safetensors_check(const ndp_safetensors *f);

const char *ndp_safetensors_path(const ndp_safetensors *f);
int ndp_safetensors_count(const ndp_safetensors *f);
/* In the order of the header; borrowed. */
const ndp_tensor_entry *ndp_safetensors_at(const ndp_safetensors *f, int i);
/* NULL: there is no tensor of that name. */
const ndp_tensor_entry *ndp_safetensors_find(const ndp_safetensors *f, const char *name);
/* A value of __metadata__; NULL: there is none. */
const char *ndp_safetensors_metadata(const ndp_safetensors *f, const char *key);

/* The bytes of a tensor, in the mapping of the file. */
const unsigned char *ndp_safetensors_data(const ndp_safetensors *f, const ndp_tensor_entry *t);

/* Gives the memory of the pages of these elements back; reading them again takes them from the file. */
void ndp_safetensors_forget(const ndp_safetensors *f, const ndp_tensor_entry *t, int64_t first, int64_t count);
/* The hash of a tensor's bytes in the file, whose memory it gives back like ndp_safetensors_forget. */
ndp_hash128 ndp_safetensors_hash(const ndp_safetensors *f, const ndp_tensor_entry *t);
/* Elements [first, first + count) of `t` into `dest` as `type`. Float types convert into each other; integers are read
 * only as their own type. `finite`: NDP_EFORMAT if an element is NaN or infinite, naming it; `dest` is then unchanged.
 */
NDP_API ndp_status ndp_safetensors_read(const ndp_safetensors *f, const ndp_tensor_entry *t, int64_t first,
                                        int64_t count, void *dest, ndp_dtype type, bool finite);

/* ---- writing ---- */

typedef struct ndp_safetensors_writer ndp_safetensors_writer;

/* Size of the file that holds `specs`, and the offset in it of each of the n tensors, in the order of the list
 * (`offsets` may be NULL). The header ends at the smallest offset. NDP_EINVAL: a name occurs twice, or a shape is
 * impossible. */
NDP_API ndp_status ndp_safetensors_size(const ndp_tensor_spec *specs, int n, int64_t *bytes, int64_t *offsets);

/* Creates the file with its header and reserves all its space, so that a full disk is detected here. `path` must not
 * exist yet: it is a temporary name or in a temporary folder, so that a failure does no harm; the file is then removed.
 * Borrows `specs`, which must outlive the writer. */
NDP_API ndp_status ndp_safetensors_create(const char *path, const ndp_tensor_spec *specs, int n,
                                          ndp_safetensors_writer **out);
/* The header that ndp_safetensors_create wrote: the bytes before the first tensor. Borrowed. */
const char *ndp_safetensors_header(const ndp_safetensors_writer *w, size_t *bytes);
/* Opens a file that another rank created from the same list. */
NDP_API ndp_status ndp_safetensors_join(const char *path, const ndp_tensor_spec *specs, int n,
                                        ndp_safetensors_writer **out);
/* Elements [first, first + count) of tensor number `tensor` of the list, given as `type`. Any number of writers may
 * write to one file at the same time, in ranges that do not overlap. */
NDP_API ndp_status ndp_safetensors_write(ndp_safetensors_writer *w, int tensor, int64_t first, int64_t count,
                                         const void *src, ndp_dtype type);
/* Makes what was written durable. */
NDP_API ndp_status ndp_safetensors_sync(ndp_safetensors_writer *w);
/* Closes the file, which stays. NULL is fine. */
void ndp_safetensors_writer_destroy(ndp_safetensors_writer *w);

#endif
