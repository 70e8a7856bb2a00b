//! The state of the parties, as far as the protocol of a split depends on it.

/// The writers, each of which makes one write. The first two write to the same row.
pub const WRITERS: usize = 3;

/// A row that exists from the beginning, and that no writer changes.
pub const BASE: u8 = 1 << WRITERS;

/// Returns the writes that belong to the same rows as those of a mask.
pub fn rows_of(mask: u8) -> u8 {
    [0b011, 0b100, BASE].into_iter().filter(|row| row & mask != 0).fold(0, |all, row| all | row)
}

/// What a source does with writes of the moving keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Give {
    /// The shard has no source side.
    No,
    Capture,
    Fenced,
    Moved,
}

/// What a target does with writes of the moving keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Take {
    /// The shard has no target side.
    No,
    Closed,
    Open,
    /// Finish has removed it.
    Left,
    /// It was rolled back. No route has ever led there.
    Unused,
}

/// A place that may take writes: a shard.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    pub timeline: u8,
    pub generation: u8,
    /// The writes that its rows show, a bit each, and `BASE`.
    pub rows: u8,
    pub give: Give,
    /// Whether it refuses what has left, after finish.
    pub redirect: bool,
    /// The transaction of each writer's entry, or 0.
    pub queue: [u8; WRITERS],
    pub next_xid: u8,
    pub consumed: u8,
    pub announced: u8,
    /// The run of the master that may have decided, or 0.
    pub deciding: u8,
    pub purging: bool,
    /// The worker whose fence holds the barrier alone.
    pub barrier: Option<u8>,
    pub take: Take,
    /// The progress: the transactions that the snapshot has seen, their timeline, and the step.
    pub seen: u8,
    pub seen_timeline: u8,
    pub steps: u8,
    /// The rows that clients have changed since it opened.
    pub changed: u8,
}

impl Place {
    /// Whether the place would accept a write now.
    pub fn accepts(&self) -> bool {
        matches!(self.give, Give::No | Give::Capture)
            && matches!(self.take, Take::No | Take::Open | Take::Left)
            && !self.redirect
    }

    /// Whether writers take the barrier of a split there.
    pub fn has_barrier(&self) -> bool {
        self.give != Give::No
    }

    pub fn is_queued(&self, xid: u8) -> bool {
        self.queue.contains(&xid)
    }
}

/// A timeline that no server has, so nothing is copied.
pub const NOTHING: u8 = 0;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// The rows are copied, and windows are applied.
    Tailing,
    Completed,
    RolledBack,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CutoverStep {
    None,
    Disabled,
    Decided,
    Moved,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Goal {
    Tail,
    Cutover,
    RollBack,
    Finish,
}

/// Where the master routes clients that write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Route {
    Waits,
    To(u8),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Master {
    /// The run of the server.
    pub run: u8,
    pub generation: u8,
    pub phase: Phase,
    pub step: CutoverStep,
    pub goal: Goal,
    pub route: Route,
    pub purged: bool,
    pub finished: bool,
    /// Whether the split has failed and waits for its operator.
    pub failed: bool,
    /// 0 is the split, 1 the reverse split, and so on.
    pub leg: u8,
}

impl Master {
    /// The place that gives the rows away.
    pub fn source(&self) -> usize {
        usize::from(self.leg % 2)
    }

    pub fn target(&self) -> usize {
        1 - self.source()
    }

    pub fn is_before_decision(&self) -> bool {
        self.phase == Phase::Tailing
    }
}

/// The next action of a worker: one commit, or one look.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Pc {
    Idle,
    TakeTarget,
    TakeSource,
    Settle,
    SettleOpen,
    SettleRoutes,
    Adopt,
    Ready,
    RevertTake,
    RevertOpen,
    RevertRoutes,
    StepSnapshot,
    StepAnnounce,
    StepCommit,
    StepProgress,
    StepConsume,
    Disable,
    Lock,
    Fence,
    Held,
    Snapshot,
    Announce,
    Commit,
    Progress,
    Consume,
    Decide,
    Open,
    Move,
    Release,
    Record,
    AbortReopen,
    AbortRelease,
    GiveUp,
    SettledTarget,
    SettledSource,
    SettledLook,
    SettledOpen,
    SettledMove,
    Complete,
    CompleteLock,
    CompleteFence,
    CompleteHeld,
    CompleteRelease,
    UndoLook,
    UndoLookBoth,
    UndoTake,
    UndoOpen,
    UndoRoutes,
    UndoSource,
    UndoTakeTarget,
    UndoRows,
    UndoTarget,
    UndoEnd,
    WithdrawTarget,
    WithdrawSource,
    Withdraw,
    FinishTold,
    FinishPurging,
    FinishRows,
    FinishPurged,
    FinishStill,
    FinishLeave,
    FinishRedirect,
    FinishSource,
    FinishTarget,
    FinishEnd,
}

/// A step that is in progress.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Step {
    /// The transactions that its snapshot sees, and the rows that it shows.
    pub seen: u8,
    pub rows: u8,
    pub timeline: u8,
    /// The number of the step.
    pub number: u8,
    /// The rows that it copies.
    pub window: u8,
    pub is_consumed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Life {
    Gone,
    Works,
    /// Its process has ended, and one statement is still on its way.
    Late,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Worker {
    pub life: Life,
    /// The index of its master. 1 is an old primary, or a copy.
    pub master: u8,
    /// The cutover on which it works.
    pub leg: u8,
    /// The generation with which it acts: on the master, on the source, and on the target.
    pub generation: u8,
    pub on_source: u8,
    pub on_target: u8,
    pub pc: Pc,
    /// Whether its sessions are open.
    pub source: bool,
    pub target: bool,
    /// Whether the step is part of a recovery.
    pub completes: bool,
    pub step: Step,
}

impl Worker {
    pub const GONE: Worker = Worker {
        life: Life::Gone,
        master: 0,
        leg: 0,
        generation: 0,
        on_source: 0,
        on_target: 0,
        pc: Pc::Idle,
        source: false,
        target: false,
        completes: false,
        step: Step { seen: 0, rows: 0, timeline: 0, number: 0, window: 0, is_consumed: false },
    };

    /// Returns where its sessions are, or will be.
    pub fn source_place(&self) -> usize {
        usize::from(self.leg % 2)
    }

    pub fn idle(master: u8) -> Worker {
        Worker { life: Life::Works, master, ..Worker::GONE }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Writer {
    Ready,
    /// It has read a place's state, for a transaction above READ COMMITTED.
    Began {
        place: u8,
        give: Give,
        take: Take,
    },
    /// It has written, and not committed.
    Wrote {
        place: u8,
        xid: u8,
        captured: bool,
        barrier: bool,
    },
    Done,
}

/// The state to which a server may be set back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Back {
    Nothing,
    Place(u8, Cause, Place),
    Master(Master),
}

/// The reason for which a shard may lose commits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// Commits of clients that do not wait for the disk, and a crash.
    Asynchronous,
    /// A standby that was behind is promoted.
    Standby,
    /// A snapshot of the disk is restored. Identity and timeline stay the same.
    Disk,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub places: [Place; 2],
    /// The master, and an old primary or a copy that lives beside it.
    pub masters: [Master; 2],
    pub workers: [Worker; 2],
    pub writers: [Writer; WRITERS],
    pub back: Back,
    /// The remaining calls and faults.
    pub calls: u8,
    pub faults: u8,
    pub setbacks: u8,
    /// Known only to the reader: the writes that clients take for committed, and where each was.
    pub acked: u8,
    pub home: u8,
    /// The writes that a source accepted after it had lost its fence.
    pub stray: u8,
    /// The place that owns the key.
    pub owner: u8,
    /// A side has lost its state. Until it is restored, two places take writes.
    pub excused: bool,
    /// A place accepted a write of a key that it does not own.
    pub misplaced: bool,
}
