/* One writer per run folder: its lock.
 *
 * FOLDER/lock names the process that writes there (holder.h), a generation, and a counter that the holder increments
 * every few seconds. File times and the clocks of hosts are never compared: NFS caches attributes, and clocks differ.
 *
 *   FREE --link lock--> HELD --unlink lock--> FREE
 *   HELD by a dead process --link lock.G+1 (one taker succeeds), read again, rename it to lock--> HELD, generation G+1
 *
 * A holder on this host (same boot id and pid namespace) is dead if no process has its number and start time, and one
 * of an earlier boot of this machine (same host name, machine id and pid namespace, another boot id) is. A holder
 * elsewhere is dead if its counter stood still for `patience` seconds of this host's monotonic clock. One that the
 * launcher of this process has started before (`--restarts`) counts as dead at once. A holder that was merely suspended
 * or cut off finds another generation before it commits (ndp_lock_check), and commits nothing; its counter goes
 * to the file that it opened, which no longer has a name. lock.c has the protocol. */
#ifndef NDP_CHECKPOINT_LOCK_H
#define NDP_CHECKPOINT_LOCK_H

#include "base/status.h"

typedef struct ndp_lock ndp_lock;

/* Seconds for which a counter stands still before its holder counts as dead. $NDP_LOCK_PATIENCE overrides it in tests.
 */
#define NDP_LOCK_PATIENCE 30.0

/* Creates the folder if it is missing; does not take the lock yet. `await`: wait for a holder elsewhere instead of
 * failing. Destroyed by the caller. */
NDP_API ndp_status ndp_lock_create(const char *folder, bool await, ndp_lock **out);
/* Releases the lock if it is held, and removes the folder if create made it and it is empty. NULL is fine. */
void ndp_lock_destroy(ndp_lock *l);

/* Tries to take the lock. NDP_EINVAL: another process holds it. *held: false while waiting for a holder elsewhere: call
 * again, at least once a second. */
NDP_API ndp_status ndp_lock_try(ndp_lock *l, bool *held);
/* What the last ndp_lock_try did that is worth a line to the user, reported once: which holder it waits for, or from
 * which it took over. "": nothing. */
const char *ndp_lock_note(const ndp_lock *l);

/* Reads the lock. NDP_EINVAL: it is no longer held by this process. Call before every commit. NULL is fine. */
NDP_API ndp_status ndp_lock_check(const ndp_lock *l);
/* The same as a question that leaves the message of an earlier failure in place. A lock that cannot be read is not
 * held. */
bool ndp_lock_held(const ndp_lock *l);
/* How often the folder has changed hands, from 1 on; 0: NULL, or it was never held. */
NDP_API int64_t ndp_lock_generation(const ndp_lock *l);
/* Whether what has that generation in its name is this process's: it holds the lock, or the lock is of a later
 * generation. (After `rm lock` another process may have the same one.) As ndp_lock_held for errors and NULL. */
bool ndp_lock_owns_names(const ndp_lock *l);
/* The status of work done under the lock: if it failed because another run took the lock and cleaned the folder, that
 * is the error returned (as by ndp_lock_check), otherwise `st`. */
NDP_API ndp_status ndp_lock_explain(const ndp_lock *l, ndp_status st);

/* NDP_EINVAL if a live process of this host holds the lock of `folder`. Changes nothing. */
NDP_API ndp_status ndp_lock_peek(const char *folder);

#endif
