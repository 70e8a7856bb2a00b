//! The state of a split and what is requested of it, as columns of `shardmaster.split_plan`. What follows from a state
//! is not decided here. Only the files of this folder change a row of that table, each for one kind of reason.

pub mod cutover;
pub mod end;
pub mod plan;
pub mod request;
pub mod row;
pub mod work;

use crate::error::{Failure, SqlState};
use crate::named_enum::named_enum;
use crate::server::sql;
use pgrx::datum::DatumWithOid;

/// Defines an enum whose variants are stored as text.
macro_rules! stored_enum {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        named_enum! { $(#[$meta])* pub enum $name { $($variant = $text),+ } }

        impl $name {
            /// Parses a value from the catalog, whose CHECK constraints admit nothing else.
            pub fn parse(text: &str) -> Result<Self, Failure> {
                Self::from_name(text).ok_or_else(|| {
                    let what = stringify!($name).to_lowercase();
                    Failure::new(SqlState::INVALID_VALUE, format!("\"{text}\" is not a {what}"))
                })
            }
        }
    };
}

stored_enum!(
    /// The phase that a split is in.
    Phase {
        Planning = "planning",
        DualWrite = "dual_write",
        Backfill = "backfill",
        Tailing = "tailing",
        CutoverPending = "cutover_pending",
        Completed = "completed",
        RolledBack = "rolled_back",
    }
);

stored_enum!(
    /// The phase that was requested.
    Goal {
        Planning = "planning",
        DualWrite = "dual_write",
        Backfill = "backfill",
        Completed = "completed",
        Finished = "finished",
        RolledBack = "rolled_back",
    }
);

stored_enum!(
    /// The step of a cutover; from `decided` on it cannot be undone.
    CutoverStep {
        None = "none",
        Disabled = "disabled",
        Decided = "decided",
        Opened = "opened",
        Moved = "moved",
    }
);

stored_enum!(
    /// What the split's worker does.
    Activity {
        Idle = "idle",
        Working = "working",
        Retrying = "retrying",
        Paused = "paused",
        Failed = "failed",
    }
);

/// The state of a request for a cutover, besides the goal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutoverRequest {
    /// The cutover is due now, if it is the goal.
    Now,
    /// The window has not begun, or the next attempt is not due.
    Later,
    /// A rehearsal is requested, not a cutover.
    Rehearsal,
}

/// SQL condition over a plan `p`: its end is requested, and its reverse split, if it has one, still exists.
pub const IS_UNDOABLE: &str =
    "(p.goal = 'finished' AND p.finished_at IS NULL AND p.undo_ended_at IS NULL AND p.purged_at IS NULL)";

/// SQL condition over a row of `split_plan`: the plan holds its keys and its shards.
pub const IS_ACTIVE: &str = "phase <> 'rolled_back' AND finished_at IS NULL";

/// SQL condition over a row of `split_plan`: the plan has ended.
pub const IS_OVER: &str = "(phase = 'rolled_back' AND goal = 'rolled_back' OR finished_at IS NOT NULL)";

/// SQL condition over a row of `split_plan`: a reverse split that was not requested.
pub const RESTS: &str = "(reverse_of IS NOT NULL AND phase = 'planning' AND goal = 'planning')";

/// SQL condition over a row of `split_plan`: the plan's keys may still come to its target.
pub const IS_UNDECIDED: &str = "phase NOT IN ('completed', 'rolled_back')
   AND NOT (reverse_of IS NOT NULL AND phase = 'planning' AND goal = 'planning')";

/// SQL condition over a row of `split_plan`: objects of the plan may be left on a shard, besides the redirect that
/// stays on purpose.
pub const IS_UNFINISHED: &str = "finished_at IS NULL
   AND NOT (phase IN ('planning', 'rolled_back') AND goal IN ('planning', phase))";

/// Parts of SET that several changes have.
const NO_ERROR: &str = "error_code = NULL, error_message = NULL, error_detail = NULL, error_hint = NULL";
const NOW: &str = "updated_at = clock_timestamp()";
/// A split that has failed, or is paused, can continue.
const NOT_FAILED: &str = "activity = CASE activity WHEN 'failed' THEN 'idle' ELSE activity END";
const NOT_PAUSED: &str = "activity = CASE activity WHEN 'paused' THEN 'idle' ELSE activity END";
/// When the first of the current failed attempts was made. Used together with the part that counts them.
const SINCE_FIRST: &str = "retrying_since = CASE WHEN attempts > 0 THEN coalesce(retrying_since, clock_timestamp()) ELSE clock_timestamp() END";

/// Changes the row of a plan, whose number is $1, if a condition holds. Returns whether it held.
fn update_if(only_if: &str, id: i64, set: &[&str], mut args: Vec<DatumWithOid<'_>>) -> bool {
    let set = set.join(", ");
    args.insert(0, id.into());
    sql::write(&format!("UPDATE shardmaster.split_plan SET {set} WHERE id = $1 AND ({only_if})"), &args) == 1
}

fn update(id: i64, set: &[&str], args: Vec<DatumWithOid<'_>>) {
    update_if("true", id, set, args);
}
