/* One file is open at a time: chunks come in the order of the files. Called by exchange.c, for each chunk as soon as it
 * is whole, and by the thread of a background save. */
#include "checkpoint/chunk_writer.h"

#include "base/text.h"

ndp_status ndp_chunk_writer_close(ndp_chunk_writer *w) {
    ndp_status st = w->open ? ndp_safetensors_sync(w->open) : NDP_OK;
    ndp_safetensors_writer_destroy(w->open);
    w->open = NULL;
    return st;
}

static ndp_status open_file(ndp_chunk_writer *w, int file) {
    if (w->open && w->file == file)
        return NDP_OK;
    NDP_TRY(ndp_chunk_writer_close(w));
    const ndp_shard_file *f = &w->s->files[file];
    char path[NDP_PATH];
    w->file = file;
    NDP_TRY(ndp_path_join(path, w->folder, f->name));
    return ndp_safetensors_join(path, f->specs, f->n, &w->open);
}

ndp_status ndp_chunk_write(ndp_chunk_writer *w, const ndp_shard_part *part, const void *data) {
    NDP_TRY(open_file(w, part->file));
    return ndp_safetensors_write(w->open, w->s->place[part->tensor], part->first, part->count, data,
                                 w->s->specs[part->tensor].dtype);
}
