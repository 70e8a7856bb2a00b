//! Where a split is and what is asked of it, as the columns of `shardmaster.split_plan`
//! have it. What follows from it is not known here. Only the files of this folder change a row
//! of that table, each for one kind of reason.

pub mod cutover;
pub mod end;
pub mod plan;
pub mod request;
pub mod row;
pub mod work;

use crate::error::{Failure, SqlState};
use crate::server::sql;
use pgrx::datum::DatumWithOid;

/// Defines an enum whose variants are stored as text.
macro_rules! stored_enum {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($variant),+ }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// From the catalog, whose CHECK constraints admit nothing else.
            pub fn parse(text: &str) -> Result<Self, Failure> {
                Self::ALL.iter().copied().find(|one| one.as_str() == text).ok_or_else(|| {
                    let what = stringify!($name).to_lowercase();
                    Failure::new(SqlState::INVALID_VALUE, format!("\"{text}\" is not a {what}"))
                })
            }
        }
    };
}

stored_enum!(
    /// What is.
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
    /// What was asked for.
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
    /// How far a cutover is; from `decided` on it cannot be undone.
    CutoverStep {
        None = "none",
        Disabled = "disabled",
        Decided = "decided",
        Opened = "opened",
        Moved = "moved",
    }
);

stored_enum!(
    /// What its worker does, in a word.
    Activity {
        Idle = "idle",
        Working = "working",
        Retrying = "retrying",
        Paused = "paused",
        Failed = "failed",
    }
);

/// What stands of a request for a cutover, beside the goal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutoverRequest {
    /// As the goal says, now.
    Now,
    /// Its window has not begun, or its next attempt is to come.
    Later,
    /// A rehearsal is asked for, no cutover.
    Rehearsal,
}

/// The end of a plan `p` is asked for, and its reverse split, if it has one, is still there.
pub const IS_UNDOABLE: &str =
    "(p.goal = 'finished' AND p.finished_at IS NULL AND p.undo_ended_at IS NULL AND p.purged_at IS NULL)";

/// A plan that holds its keys and its shards, as SQL over a row of `split_plan`.
pub const IS_ACTIVE: &str = "phase <> 'rolled_back' AND finished_at IS NULL";

/// A plan that has ended, as SQL over a row of `split_plan`.
pub const IS_OVER: &str = "(phase = 'rolled_back' AND goal = 'rolled_back' OR finished_at IS NOT NULL)";

/// A reverse split that nobody has asked for, as SQL over a row of `split_plan`.
pub const RESTS: &str = "(reverse_of IS NOT NULL AND phase = 'planning' AND goal = 'planning')";

/// A plan whose keys may still come to its target, as SQL over a row of `split_plan`.
pub const IS_UNDECIDED: &str = "phase NOT IN ('completed', 'rolled_back')
   AND NOT (reverse_of IS NOT NULL AND phase = 'planning' AND goal = 'planning')";

/// A plan of which objects may be left on a shard, beyond the redirect that stays on purpose;
/// as SQL over a row of `split_plan`.
pub const IS_UNFINISHED: &str = "finished_at IS NULL
   AND NOT (phase IN ('planning', 'rolled_back') AND goal IN ('planning', phase))";

/// The parts of SET that more than one change has.
const NO_ERROR: &str = "error_code = NULL, error_message = NULL, error_detail = NULL, error_hint = NULL";
const NOW: &str = "updated_at = clock_timestamp()";
/// A split that has failed, or is paused, can go on.
const NOT_FAILED: &str = "activity = CASE activity WHEN 'failed' THEN 'idle' ELSE activity END";
const NOT_PAUSED: &str = "activity = CASE activity WHEN 'paused' THEN 'idle' ELSE activity END";
/// When the first of the attempts has failed that are in vain since; beside what counts them.
const SINCE_FIRST: &str = "retrying_since = CASE WHEN attempts > 0 THEN coalesce(retrying_since, clock_timestamp()) ELSE clock_timestamp() END";

/// Changes the row of a plan, whose number is $1, where a condition holds. Whether it held.
fn update_if(only_if: &str, id: i64, set: &[&str], mut args: Vec<DatumWithOid<'_>>) -> bool {
    let set = set.join(", ");
    args.insert(0, id.into());
    sql::write(&format!("UPDATE shardmaster.split_plan SET {set} WHERE id = $1 AND ({only_if})"), &args) == 1
}

fn update(id: i64, set: &[&str], args: Vec<DatumWithOid<'_>>) {
    update_if("true", id, set, args);
}
