/* One writer: the lock of a run folder.
 *
 * FOLDER/lock names the process that writes there (holder.h), a generation, and a counter that the holder increments
 * every few seconds. Neither file times nor clocks of hosts are compared: NFS caches attributes, and clocks differ.
 *
 *   FREE --link lock--> HELD --unlink lock--> FREE
 *   HELD, its holder dead --link lock.G+1 (one taker succeeds), look again, rename it to lock--> HELD in generation G+1
 *
 * A holder is dead when this host has no such process any more: the same boot id and pid namespace, but no process of
 * that number and start time. A holder elsewhere is dead when its counter stood still for `patience` seconds of this
 * host's monotonic clock. A holder that was only stopped finds another generation before it commits (ndp_lock_check),
 * and commits nothing. Its counter goes to the file that it opened, which no longer has a name. */
#ifndef NDP_CHECKPOINT_LOCK_H
#define NDP_CHECKPOINT_LOCK_H

#include "base/status.h"

typedef struct ndp_lock ndp_lock;

/* Seconds that a counter stands still before its holder counts as dead; $NDP_LOCK_PATIENCE, for tests, replaces it. */
#define NDP_LOCK_PATIENCE 30.0

/* Makes the folder if need be; takes nothing yet. `await`: a holder elsewhere is waited for, not refused. Destroyed
 * by the caller. */
NDP_API ndp_status ndp_lock_create(const char *folder, bool await, ndp_lock **out);
/* Releases the lock if it is held, and removes the folder if create made it and nothing is in it. NULL is fine. */
void ndp_lock_destroy(ndp_lock *l);

/* Tries to take the lock. NDP_EINVAL: another process holds it. *held is false where a holder elsewhere is waited for:
 * call again, at least once a second. */
NDP_API ndp_status ndp_lock_try(ndp_lock *l, bool *held);
/* What the last ndp_lock_try has to say for the first time, a line for people: whom it waits for, from whom it took
 * over. "" for nothing. */
const char *ndp_lock_note(const ndp_lock *l);

/* Reads the lock: NDP_EINVAL when it is no longer this one's. Called before anything is committed. NULL is fine. */
NDP_API ndp_status ndp_lock_check(const ndp_lock *l);
/* The same as a question, which leaves the message of an earlier failure as it is. A lock that cannot be read is not
 * held. */
bool ndp_lock_held(const ndp_lock *l);
/* The outcome of what was written under the lock: when that failed because another run took the lock and cleaned the
 * folder, the failure of ndp_lock_check. */
NDP_API ndp_status ndp_lock_explain(const ndp_lock *l, ndp_status st);

/* NDP_EINVAL when a live process of this host holds the lock of `folder`. Changes nothing. */
NDP_API ndp_status ndp_lock_peek(const char *folder);

#endif
