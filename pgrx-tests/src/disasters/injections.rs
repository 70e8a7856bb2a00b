//! The columns of the matrix: where in a split's life a disaster is injected.

/// How far a split is, as far as it matters for how it may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SplitStage {
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
    pub stage: SplitStage,
}

impl Injection {
    pub fn is_point(&self) -> bool {
        !matches!(self.name, "planned" | "tailing" | "completed")
    }

    /// Nothing is decided yet.
    pub fn is_before_decision(&self) -> bool {
        self.stage <= SplitStage::Fenced || self.stage == SplitStage::RollingBack
    }
}

const fn at(name: &'static str, stage: SplitStage) -> Injection {
    Injection { name, stage }
}

pub const INJECTIONS: &[Injection] = &[
    at("planned", SplitStage::Planned),
    at("step_chunk", SplitStage::Copying),
    at("tailing", SplitStage::Tailing),
    at("cutover_begin", SplitStage::Tailing),
    at("cutover_disabled", SplitStage::Closing),
    at("cutover_locked", SplitStage::Closing),
    at("cutover_fenced", SplitStage::Fenced),
    at("cutover_applied", SplitStage::Fenced),
    at("cutover_sequences", SplitStage::Fenced),
    at("cutover_reopened", SplitStage::Closing),
    at("cutover_decided", SplitStage::Decided),
    at("recovery_fenced", SplitStage::Decided),
    at("recovery_awaited", SplitStage::Decided),
    at("recovery_caught_up", SplitStage::Decided),
    at("cutover_opened", SplitStage::Opened),
    at("cutover_moved", SplitStage::Completed),
    at("completed", SplitStage::Completed),
    at("finish_ready", SplitStage::Completed),
    at("finish_begin", SplitStage::Completed),
    at("finish_batch", SplitStage::Finishing),
    at("finish_rows", SplitStage::Purged),
    at("finish_unguarded", SplitStage::Purged),
    at("finish_entered", SplitStage::Purged),
    at("finish_trigger", SplitStage::Purged),
    at("finish_redirected", SplitStage::Purged),
    at("finish_untriggered", SplitStage::Purged),
    at("finish_left", SplitStage::Ended),
    at("finish_dropped", SplitStage::Ended),
    at("finish_objects", SplitStage::Ended),
    at("rollback_begin", SplitStage::RollingBack),
    at("rollback_capture", SplitStage::RollingBack),
    at("rollback_batch", SplitStage::RollingBack),
    at("rollback_rows", SplitStage::RollingBack),
    at("rollback_objects", SplitStage::RollingBack),
];

/// Where links alone are struck, beside these: what a server leaves behind that ends there,
/// `faults/injection_points.rs` shows.
pub const OF_LINKS: &[Injection] = &[
    at("install_begin", SplitStage::Planned),
    at("install_ledger", SplitStage::Planned),
    at("install_target", SplitStage::Planned),
    at("install_guarded", SplitStage::Planned),
    at("install_source", SplitStage::Planned),
    at("install_trigger", SplitStage::Planned),
    at("reverse_planned", SplitStage::Planned),
    at("reverse_captured", SplitStage::Planned),
    at("install_done", SplitStage::Planned),
    at("backfill_begin", SplitStage::Copying),
    at("step_begin", SplitStage::Copying),
    at("step_snapshot", SplitStage::Copying),
    at("step_window", SplitStage::Copying),
    at("step_durable", SplitStage::Copying),
    at("step_committed", SplitStage::Copying),
    at("step_consumed", SplitStage::Copying),
    at("backfill_done", SplitStage::Copying),
    at("tail_caught_up", SplitStage::Copying),
    at("step_begin", SplitStage::Tailing),
    at("step_snapshot", SplitStage::Tailing),
    at("step_window", SplitStage::Tailing),
    at("step_durable", SplitStage::Tailing),
    at("step_committed", SplitStage::Tailing),
    at("step_consumed", SplitStage::Tailing),
];

/// The server's own points that belong into the matrix, by how their names begin.
pub const FAMILIES: [&str; 4] = ["cutover_", "recovery_", "finish_", "rollback_"];
