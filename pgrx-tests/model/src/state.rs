//! What the parties know, as far as the protocol of a split depends on it.

/// Writers, of which each makes one write. The first two write to the same row.
pub const WRITERS: usize = 3;

/// A row that is there from the beginning, and that no writer touches.
pub const BASE: u8 = 1 << WRITERS;

/// The writes that belong to the same row as those of a mask.
pub fn rows_of(mask: u8) -> u8 {
    [0b011, 0b100, BASE].into_iter().filter(|row| row & mask != 0).fold(0, |all, row| all | row)
}

/// What a source does with writes of the moving keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Give {
    /// Nothing of a source's side is installed.
    No,
    Capture,
    Fenced,
    Moved,
}

/// What a target does with them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Take {
    /// Nothing of a target's side is installed.
    No,
    Closed,
    Open,
    /// Finish has left it.
    Left,
    /// Rolled back: no route has ever led there.
    Unused,
}

/// A place that may take writes: a shard.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    pub timeline: u8,
    pub generation: u8,
    /// Writes that its rows show, a bit each, and `BASE`.
    pub rows: u8,
    pub give: Give,
    /// Refuses what has left, after finish.
    pub redirect: bool,
    /// The transaction of each writer's entry; 0: none.
    pub queue: [u8; WRITERS],
    pub next_xid: u8,
    pub consumed: u8,
    pub announced: u8,
    /// The run of the master that may have decided; 0: none.
    pub deciding: u8,
    pub purging: bool,
    /// The worker whose fence holds the barrier alone.
    pub barrier: Option<u8>,
    pub take: Take,
    /// Of the progress: transactions that the snapshot has seen, on which timeline, which step.
    pub seen: u8,
    pub seen_timeline: u8,
    pub steps: u8,
    /// Rows that clients have changed since it opened.
    pub changed: u8,
}

impl Place {
    /// Whether a write that came now would be let in.
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

/// A timeline that no server has: nothing is copied.
pub const NOTHING: u8 = 0;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// Copied; windows are applied.
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

/// Where the master leads clients that write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Route {
    Waits,
    To(u8),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Master {
    /// Which run of the server it is.
    pub run: u8,
    pub generation: u8,
    pub phase: Phase,
    pub step: CutoverStep,
    pub goal: Goal,
    pub route: Route,
    pub purged: bool,
    pub finished: bool,
    /// The split has failed and waits for its operator.
    pub failed: bool,
    /// 0: the split; 1: the reverse split; and so on.
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

/// The next thing that a worker does: one commit, or one look.
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

/// A step that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Step {
    /// Transactions that its snapshot sees, and the rows that it shows.
    pub seen: u8,
    pub rows: u8,
    pub timeline: u8,
    /// Its number.
    pub number: u8,
    /// Rows that are brought over.
    pub window: u8,
    pub is_consumed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Life {
    Gone,
    Works,
    /// Its process has ended; one statement is still on its way.
    Late,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Worker {
    pub life: Life,
    /// Of which master: 1 is an old primary, or a copy.
    pub master: u8,
    /// The cutover that it is about.
    pub leg: u8,
    /// As whom it acts: on the master, on the source, on the target.
    pub generation: u8,
    pub on_source: u8,
    pub on_target: u8,
    pub pc: Pc,
    /// Its sessions are there.
    pub source: bool,
    pub target: bool,
    /// The step is a recovery's.
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

    /// Where its sessions are, or will be.
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
    /// Has read a place's state, for a transaction above READ COMMITTED.
    Began {
        place: u8,
        give: Give,
        take: Take,
    },
    /// Has written, and not committed.
    Wrote {
        place: u8,
        xid: u8,
        captured: bool,
        barrier: bool,
    },
    Done,
}

/// What a server may be set back to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Back {
    Nothing,
    Place(u8, Cause, Place),
    Master(Master),
}

/// Why a shard may forget.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// Commits of clients that do not wait for the disk, and a crash.
    Asynchronous,
    /// A standby that was behind is promoted.
    Standby,
    /// A snapshot of the disk is restored: identity and timeline stay.
    Disk,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub places: [Place; 2],
    /// The master; beside it an old primary or a copy that lives on.
    pub masters: [Master; 2],
    pub workers: [Worker; 2],
    pub writers: [Writer; WRITERS],
    pub back: Back,
    /// What may still happen.
    pub calls: u8,
    pub faults: u8,
    pub setbacks: u8,
    /// What only the reader knows: writes that clients take for committed, and where each was.
    pub acked: u8,
    pub home: u8,
    /// Writes that a source took which had forgotten its fence.
    pub stray: u8,
    /// The place that owns the key.
    pub owner: u8,
    /// A side has forgotten what it was told: until it is told again two places take writes.
    pub excused: bool,
    /// A place took a write that it does not own.
    pub misplaced: bool,
}
