// Runs that go on while the caller does something else: whether they have
// ended, who hears of it, and events that a caller shares with programs.
#ifndef HEDDLE_ASYNC_H
#define HEDDLE_ASYNC_H

#include <heddle/heddle.h>

HD_BEGIN_DECLS

// Whether every run issued so far has ended, without blocking; if one has
// failed, that is returned, and they are done. What is done, hd_session_finish
// has been called of.
HD_API HD_MUST_USE hd_status hd_session_query(hd_session *session,
                                              hd_diag *diag, bool *done);
// As above, and blocks until it is so, for `seconds` at most: that they are
// over is no failure.
HD_API HD_MUST_USE hd_status hd_session_wait(hd_session *session,
                                             double seconds, hd_diag *diag,
                                             bool *done);
// A descriptor for poll and epoll. Each call resets it: from then on it is
// readable once every run that was issued before this call has ended or failed.
// hd_session_query says which, as soon as what peers have just said is read: it
// is asked again where it says neither. Runs issued later change nothing. It is
// the session's, which closes it, and always the same; it is only to be polled.
HD_API HD_MUST_USE hd_status hd_session_descriptor(hd_session *session,
                                                   hd_diag *diag, int *fd);
// Calls `fn` once, when every run issued so far has ended or failed, with
// HD_OK or the failure: on a thread of the library, one that this and
// hd_session_descriptor start for the session when they are first called. What
// is asked for earlier is called earlier, and before hd_session_destroy
// returns. So `fn` may neither destroy the session nor wait for whoever does;
// other calls of the session are for the caller's one thread. What counts were
// wrong hd_session_finish tells alone.
typedef void hd_notify_fn(void *context, hd_status status);
HD_API HD_MUST_USE hd_status hd_session_notify(hd_session *session,
                                               hd_notify_fn *fn, void *context,
                                               hd_diag *diag);

// An event that a caller shares with programs (`in %go : event[]`).
typedef struct hd_event hd_event;

HD_API hd_event *hd_event_create(void); // NULL if memory runs out
HD_API void hd_event_destroy(hd_event *event);
HD_API void hd_event_record(hd_event *event);
// Waits for the last record made before the call, `timeout` seconds at most.
HD_API HD_MUST_USE hd_status hd_event_wait(hd_event *event, double timeout);

HD_END_DECLS

#endif
