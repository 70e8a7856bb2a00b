//! The injection points of a split: one list gives the points and the tests that must
//! exist.

pub use crate::server::injection::{Point, reach};

macro_rules! points {
    ($($id:ident = $name:literal, $phase:literal, $description:literal;)+) => {
        $(pub const $id: &Point = &Point { name: $name, phase: $phase, description: $description };)+
        /// Every point, in the order in which a split reaches it.
        pub const ALL: &[&Point] = &[$($id),+];
    };
}

points! {
    INSTALL_BEGIN = "install_begin", "planning", "before anything is created on a shard";
    INSTALL_LEDGER = "install_ledger", "planning", "the ledger lists what may exist; nothing exists yet";
    INSTALL_TARGET = "install_target", "planning", "the target's state row is committed, its guard is not installed";
    INSTALL_GUARDED = "install_guarded", "planning", "the target is guarded, the source knows nothing yet";
    INSTALL_SOURCE = "install_source", "planning", "the source's state row is committed, no trigger captures yet";
    INSTALL_TRIGGER = "install_trigger", "planning", "one table captures, the next does not yet";
    INSTALL_DONE = "install_done", "planning", "everything captures, the phase is not changed yet";
    BACKFILL_BEGIN = "backfill_begin", "dual_write", "before the phase becomes backfill";
    STEP_BEGIN = "step_begin", "backfill", "before a step takes its snapshot";
    STEP_SNAPSHOT = "step_snapshot", "backfill", "the step has its snapshot, the target knows nothing";
    STEP_WINDOW = "step_window", "backfill", "the window is applied, the target has not committed";
    STEP_CHUNK = "step_chunk", "backfill", "the chunk is copied, the target has not committed";
    STEP_DURABLE = "step_durable", "backfill", "the snapshot is durable on the source, the target has not committed";
    STEP_COMMITTED = "step_committed", "backfill", "the target has committed, the queue is not consumed";
    STEP_CONSUMED = "step_consumed", "backfill", "the queue is consumed, the master does not know";
    STREAMS_BEGUN = "streams_begun", "backfill", "the step is committed, its streams hold its snapshot and have copied nothing";
    STREAMS_COPIED = "streams_copied", "backfill", "each stream has copied its chunk, none has committed";
    STREAM_COMMITTED = "stream_committed", "backfill", "a stream has committed its chunk, the next one has not";
    BACKFILL_DONE = "backfill_done", "backfill", "every table is copied, the phase is not changed yet";
    RESTART_REMEMBERED = "restart_remembered", "tailing", "the target records why it is copied again, the source's counters do not show it";
    OVERFLOW_RESET = "overflow_reset", "tailing", "the queue was full: the target starts from nothing, the marks are still there";
    OVERFLOW_CLEARED = "overflow_cleared", "tailing", "the marks are gone, writers still find the queue closed";
    STREAMS_COMPARED = "streams_compared", "tailing", "each stream has compared its range of a table, nothing of it is recorded";
    TAIL_CAUGHT_UP = "tail_caught_up", "tailing", "caught up, the phase is not changed yet";
    CUTOVER_BEGIN = "cutover_begin", "cutover_pending", "the cutover was requested, nothing is done";
    CUTOVER_DISABLED = "cutover_disabled", "cutover_pending", "routes for writing wait, the source takes writes";
    CUTOVER_LOCKED = "cutover_locked", "cutover_pending", "the fence holds its lock, the source is not fenced";
    CUTOVER_FENCED = "cutover_fenced", "cutover_pending", "the source is fenced";
    CUTOVER_APPLIED = "cutover_applied", "cutover_pending", "the last window is on the target";
    CUTOVER_SEQUENCES = "cutover_sequences", "cutover_pending", "the sequences are raised, nothing is decided";
    CUTOVER_REOPENED = "cutover_reopened", "cutover_pending", "a cutover was aborted and the source accepts writes again, the master does not know";
    CUTOVER_DECIDED = "cutover_decided", "completed", "the master has decided, the target is closed";
    CUTOVER_OPENED = "cutover_opened", "completed", "the target accepts writes, the source is fenced";
    RECOVERY_FENCED = "recovery_fenced", "completed", "a source that had lost its fence has it again, the target is not open yet or still is";
    RECOVERY_AWAITED = "recovery_awaited", "completed", "those that began before the fence have ended, the target is closed and behind";
    RECOVERY_CAUGHT_UP = "recovery_caught_up", "completed", "the target holds what the fenced source holds, and is closed";
    CUTOVER_MOVED = "cutover_moved", "completed", "the source refuses its old clients, the master does not know";
    FINISH_READY = "finish_ready", "completed", "nothing prevents finish, and the split can no longer be taken back";
    FINISH_BEGIN = "finish_begin", "completed", "finish was requested, nothing is deleted";
    FINISH_BATCH = "finish_batch", "completed", "a batch of rows is deleted from the source";
    FINISH_ROWS = "finish_rows", "completed", "no row of the scope is left on the source";
    FINISH_UNGUARDED = "finish_unguarded", "completed", "the target's guard is gone, the redirect knows nothing yet";
    FINISH_ENTERED = "finish_entered", "completed", "the redirect knows which keys have left, tables may have no trigger of it yet";
    FINISH_TRIGGER = "finish_trigger", "completed", "one table has the redirect's triggers, the next does not yet";
    FINISH_REDIRECTED = "finish_redirected", "completed", "the redirect refuses, and the split's own triggers still do";
    FINISH_UNTRIGGERED = "finish_untriggered", "completed", "the split's own triggers are gone, its state row and queue are still there";
    FINISH_LEFT = "finish_left", "completed", "the source has nothing of the split but the redirect, the target still records that the keys left";
    FINISH_DROPPED = "finish_dropped", "completed", "the target's last state row is gone, neither side has been checked again";
    FINISH_OBJECTS = "finish_objects", "completed", "no shard has anything of the split but the redirect, the plan is not finished yet";
    REDIRECT_BEGIN = "redirect_begin", "completed", "a part of a redirect is to end, the shard still refuses it";
    REDIRECT_ENDED = "redirect_ended", "completed", "the shard no longer refuses it, the master does not know";
    ROLLBACK_BEGIN = "rollback_begin", "rolled_back", "rollback was requested, nothing is undone";
    ROLLBACK_CAPTURE = "rollback_capture", "rolled_back", "the source no longer captures";
    ROLLBACK_BATCH = "rollback_batch", "rolled_back", "a batch of rows is deleted from the target";
    ROLLBACK_ROWS = "rollback_rows", "rolled_back", "no row of the scope is left on the target";
    ROLLBACK_OBJECTS = "rollback_objects", "rolled_back", "no shard has anything of the split, the phase is not changed yet";
    REVERSE_PLANNED = "reverse_planned", "planning", "the reverse split is planned, nothing captures for it";
    REVERSE_CAPTURED = "reverse_captured", "planning", "the target captures for the reverse split, the master does not know its tables' columns";
    REVERSE_GUARDED = "reverse_guarded", "planning", "the source is guarded for its reverse split, which has not begun";
    REVERSE_LEFT = "reverse_left", "completed", "the reverse split has decided, one shard of the split has nothing of it any more";
    RESHAPE_REPLAYED = "reshape_replayed", "backfill", "tables of the target were changed as those of the source, no event records it";
    RESHAPE_PLACED = "reshape_placed", "backfill", "partitions of the source were made on the target, no event records it";
    RESHAPE_ADOPTED = "reshape_adopted", "backfill", "the target knows which changed tables are copied again and which continue, no event records it";
}
