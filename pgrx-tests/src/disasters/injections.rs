//! The columns of the matrix: where in a split's life a disaster is injected.

/// How far a split is, as far as it matters for how it may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Planned, nothing on any shard.
    Planned,
    /// The first rows are on their way.
    Copying,
    /// The target follows the source.
    Tailing,
    /// The source takes writes, and soon will not.
    Closing,
    /// The source is fenced, nothing is decided.
    Fenced,
    /// The master has decided, the target is closed.
    Decided,
    /// The target takes writes.
    Opened,
    /// The cutover is behind it.
    Completed,
    /// Rows leave the source.
    Finishing,
    /// No row of the scope is left on the source.
    Purged,
    /// Of the split nothing is left on a shard but the redirect.
    Ended,
    /// It goes back.
    RollingBack,
}

#[derive(Debug)]
pub struct Injection {
    /// A named point at which the worker is held, or the name of a phase.
    pub name: &'static str,
    pub stage: Stage,
}

impl Injection {
    pub fn is_point(&self) -> bool {
        !matches!(self.name, "planned" | "tailing" | "completed")
    }

    /// Nothing is decided yet.
    pub fn is_before_decision(&self) -> bool {
        self.stage <= Stage::Fenced || self.stage == Stage::RollingBack
    }
}

const fn at(name: &'static str, stage: Stage) -> Injection {
    Injection { name, stage }
}

pub const INJECTIONS: &[Injection] = &[
    at("planned", Stage::Planned),
    at("step_chunk", Stage::Copying),
    at("tailing", Stage::Tailing),
    at("cutover_begin", Stage::Tailing),
    at("cutover_disabled", Stage::Closing),
    at("cutover_locked", Stage::Closing),
    at("cutover_fenced", Stage::Fenced),
    at("cutover_applied", Stage::Fenced),
    at("cutover_sequences", Stage::Fenced),
    at("cutover_reopened", Stage::Closing),
    at("cutover_decided", Stage::Decided),
    at("recovery_fenced", Stage::Decided),
    at("recovery_awaited", Stage::Decided),
    at("recovery_caught_up", Stage::Decided),
    at("cutover_opened", Stage::Opened),
    at("cutover_moved", Stage::Completed),
    at("completed", Stage::Completed),
    at("finish_ready", Stage::Completed),
    at("finish_begin", Stage::Completed),
    at("finish_batch", Stage::Finishing),
    at("finish_rows", Stage::Purged),
    at("finish_unguarded", Stage::Purged),
    at("finish_entered", Stage::Purged),
    at("finish_trigger", Stage::Purged),
    at("finish_redirected", Stage::Purged),
    at("finish_untriggered", Stage::Purged),
    at("finish_left", Stage::Ended),
    at("finish_dropped", Stage::Ended),
    at("finish_objects", Stage::Ended),
    at("rollback_begin", Stage::RollingBack),
    at("rollback_capture", Stage::RollingBack),
    at("rollback_batch", Stage::RollingBack),
    at("rollback_rows", Stage::RollingBack),
    at("rollback_objects", Stage::RollingBack),
];

/// Where links alone are struck, beside these: what a server leaves behind that ends there,
/// `faults/injection_points.rs` shows.
pub const OF_LINKS: &[Injection] = &[
    at("install_begin", Stage::Planned),
    at("install_ledger", Stage::Planned),
    at("install_target", Stage::Planned),
    at("install_guarded", Stage::Planned),
    at("install_source", Stage::Planned),
    at("install_trigger", Stage::Planned),
    at("reverse_planned", Stage::Planned),
    at("reverse_captured", Stage::Planned),
    at("install_done", Stage::Planned),
    at("backfill_begin", Stage::Copying),
    at("step_begin", Stage::Copying),
    at("step_snapshot", Stage::Copying),
    at("step_window", Stage::Copying),
    at("step_durable", Stage::Copying),
    at("step_committed", Stage::Copying),
    at("step_consumed", Stage::Copying),
    at("backfill_done", Stage::Copying),
    at("tail_caught_up", Stage::Copying),
    at("step_begin", Stage::Tailing),
    at("step_snapshot", Stage::Tailing),
    at("step_window", Stage::Tailing),
    at("step_durable", Stage::Tailing),
    at("step_committed", Stage::Tailing),
    at("step_consumed", Stage::Tailing),
];

/// The server's own points that belong into the matrix, by how their names begin.
pub const FAMILIES: [&str; 4] = ["cutover_", "recovery_", "finish_", "rollback_"];
