//! The rules of docs/internals/protocol.md, each of which can be left out.

/// Defines the rules, and the list of them.
macro_rules! rules {
    ($($(#[$meta:meta])* $name:ident),+ $(,)?) => {
        /// A rule of the protocol.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Rule { $($(#[$meta])* $name),+ }

        impl Rule {
            pub const ALL: &'static [Rule] = &[$(Rule::$name),+];
        }
    };
}

rules! {
    /// The fence holds the barrier alone, so no transaction of a writer is open.
    FenceWaitsForWriters,
    /// A writer reads the state after it has the barrier, with a new snapshot.
    StateReadBehindLock,
    /// Above READ COMMITTED a snapshot from before a change of the state is refused.
    OldSnapshotRefused,
    /// After the source is fenced the fence is asked whether it has held.
    FenceAskedWhetherHeld,
    /// The source refuses writers before the decision.
    SourceFenced,
    /// The last window is read after the fence.
    LastWindowBehindFence,
    /// The target opens after the decision, not before.
    OpenAfterDecision,
    /// The target refuses writers until it opens.
    TargetGuarded,
    /// Every change of a shard names the generation of its worker.
    GenerationOnShards,
    /// The sessions of an earlier worker are ended before anything is read.
    SessionsEnded,
    /// The decision names the generation of its worker, on the master.
    GenerationOnMaster,
    /// A master has one worker for a split at a time.
    OneWorker,
    /// A shard belongs to one master, known by its identity.
    MasterIdentity,
    /// The progress is committed with the rows.
    ProgressWithRows,
    /// A window is a difference of snapshots, not a range of numbers.
    WindowBySnapshots,
    /// Only what a snapshot has seen leaves the queue.
    OnlySeenConsumed,
    /// The queue drops only what the target has committed.
    ConsumedAfterCommit,
    /// A step's snapshot is durable on the source before the target commits it.
    DurableBeforeCommit,
    /// A target below what the source has given away is copied again.
    TargetBehindNoticed,
    /// A source that has not announced what the target holds is copied again.
    SourceBehindNoticed,
    /// A copy that begins again is remembered on the target before the source counts its step.
    RestartRemembered,
    /// Another timeline of the source begins everything again.
    TimelineCompared,
    /// The source notes which run of the master may decide, with the last window.
    DecidingNoted,
    /// A run does not take the note of another run for its own.
    RunCompared,
    /// The note is removed in the commit that opens the source again.
    NoteGoesWithReopening,
    /// A decision that the shards know is made again by a master that has lost it.
    LostDecisionAdopted,
    /// A source that has lost its fence is fenced again before the target opens.
    FencedAgain,
    /// A fence without a note of a decision is taken again, because writers may be behind it.
    FenceBorneOut,
    /// A recovery opens nothing before a step has found no changes, or the counters agree.
    WholeBeforeOpening,
    /// Without a step a target opens only if its last step is the source's last announced one.
    CountersAgree,
    /// Without a step a target opens only if the source has the note.
    NoteBorneOut,
    /// The last window is a step of its own, even if nothing has changed.
    LastStepCounts,
    /// The state of a completed split is restored on a shard that has lost it.
    ToldAgain,
    /// Finish begins when both shards know the cutover.
    ToldBeforeFinish,
    /// Changes that no window has taken stop a finish.
    StrayStopsFinish,
    /// Each row is proved to be on the target before it is deleted.
    RowsProven,
    /// The source notes that its rows are being deleted, before the first of them is.
    PurgingNoted,
    /// The redirect exists before the triggers of the split are dropped.
    RedirectFirst,
    /// A rollback leaves the target's guard until its rows are gone.
    GuardOutlivesRows,
    /// A rollback takes both shards over before it relies on what they say.
    RollbackTakesFirst,
    /// A rollback that finds a decision leaves it to be adopted.
    RollbackAdopts,
    /// A cutover that another worker has left is set back.
    LeftCutoverReverted,

    /// Reverse: capture begins in the commit that opens the target.
    CaptureFromOpening,
    /// Reverse: from its opening on, writers of the target take the barrier.
    BarrierFromOpening,
    /// Reverse: the source stays closed for clients while windows are copied back.
    SourceStaysShut,
    /// Reverse: opening the old source ends what its old side refuses.
    OldSideReleased,
    /// Reverse: nothing begins before the source is moved and the master knows it.
    BegunAfterMoved,
    /// Reverse: once finish has begun there is no reverse split. One row has both requests.
    FinishEndsTheWayBack,
    /// Reverse: the decision ends the watch over the state of the first cutover.
    WatchEndsWithDecision,
    /// Reverse: while windows are copied back, the state of the first cutover is restored on a shard that has
    /// lost it.
    WatchedUntilReversed,
    /// Reverse: if the old source has lost its fence, the reverse split is copied from nothing.
    CopiedAgainAfterRetelling,
    /// Reverse: an old source that has lost only the reverse split gets its side of it again.
    WayBackInstalledAgain,
    /// Reverse: a master that has lost all of a reverse split finds its decision on the shards.
    WayBackLookedFor,
    /// Reverse: the commit that notes the deletion of rows ends what the old source has of the reverse split.
    PurgingEndsTheWayBack,
    /// Reverse: one worker at a time does the work of both directions, including the watch.
    OneWorkerForBoth,
    /// Reverse: finish removes the reverse split from the target before anything can refuse it.
    FinishTakesTheWayBackAway,
    /// Reverse: its steps are counted from zero, whenever its progress begins.
    StepsFromNone,
    /// Reverse: changes that the old source accepted without its fence stop a copy that would delete them.
    StrayStopsTheWayBack
}
