//! The columns of the matrix: the points in a split's life at which a disaster is injected.

/// The progress of a split, as far as it matters for how the split may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SplitStage {
    /// It is planned, and nothing is on any shard.
    Planned,
    /// The first rows are being copied.
    Copying,
    /// The target follows the source.
    Tailing,
    /// The source takes writes, and will soon stop.
    Closing,
    /// The source is fenced, and nothing is decided.
    Fenced,
    /// The master has decided, and the target is closed.
    Decided,
    /// The target takes writes.
    Opened,
    /// The cutover is over.
    Completed,
    /// Rows are being deleted on the source.
    Finishing,
    /// The source has no rows of the scope any more.
    Purged,
    /// Nothing of the split is left on a shard except the redirect.
    Ended,
    /// The split is being rolled back.
    RollingBack,
}

#[derive(Debug)]
pub struct Injection {
    /// The injection point at which the worker is held, or the name of a phase.
    pub name: &'static str,
    pub stage: SplitStage,
}

impl Injection {
    pub fn is_point(&self) -> bool {
        !matches!(self.name, "planned" | "tailing" | "completed")
    }

    /// Whether the cutover has not decided yet.
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

/// More points at which links alone are struck. `faults/injection_points.rs` covers servers that end at these points.
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

/// The prefixes of the server's own points that belong into the matrix.
pub const FAMILIES: [&str; 4] = ["cutover_", "recovery_", "finish_", "rollback_"];
