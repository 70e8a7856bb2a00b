//! Where a split is and what is asked of it, as the columns of `shardmaster.split_plan`
//! have it. What follows from it is not known here.

use crate::error::{Failure, SqlState};

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

/// How far a completed split is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Not finished; its shards were asked lately.
    Open,
    /// Its end is asked for, and has not taken away what would bring it back.
    Undoable,
    /// Not finished, and its time has come.
    Settles,
    /// Not finished, and its shards are to be asked again.
    Due,
    /// Not finished, and its sides are to be compared.
    Verifies,
    Finished,
    /// Finished, and something of its redirect is to end.
    RedirectDue,
}

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
