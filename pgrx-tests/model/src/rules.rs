//! The rules of docs/internals/protocol.md, each of which can be left out.

/// Defines the rules, and the list of them.
macro_rules! rules {
    ($($(#[$meta:meta])* $name:ident),+ $(,)?) => {
        /// A rule that the protocol keeps.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Rule { $($(#[$meta])* $name),+ }

        impl Rule {
            pub const ALL: &'static [Rule] = &[$(Rule::$name),+];
        }
    };
}

rules! {
    /// The fence has the barrier alone: no transaction of a writer is open then.
    FenceWaitsForWriters,
    /// A writer reads the state after it has the barrier, with a new snapshot.
    StateReadBehindLock,
    /// Above READ COMMITTED a snapshot from before a change of the state is refused.
    OldSnapshotRefused,
    /// After the source is fenced the fence is asked whether it has held.
    FenceAskedWhetherHeld,
    /// The source refuses writers before the decision.
    SourceFenced,
    /// The last window is read behind the fence.
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
    /// The queue gives away what the target has committed, not before.
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
    /// The note of another run is not taken for one's own.
    RunCompared,
    /// The note goes in the commit that opens the source again.
    NoteGoesWithReopening,
    /// A decision that the shards know is made again by a master that has lost it.
    LostDecisionAdopted,
    /// A source that has lost its fence is fenced again before the target opens.
    FencedAgain,
    /// A fence that no note of a decision bears out is taken again: writers may be behind it.
    FenceBorneOut,
    /// In a recovery nothing is opened before a step has found nothing, or the counters agree.
    WholeBeforeOpening,
    /// Without a step a target opens only if its last step is the source's last announced one.
    CountersAgree,
    /// Without a step a target opens only if the source has the note.
    NoteBorneOut,
    /// The last window is a step of its own, also where nothing has changed.
    LastStepCounts,
    /// Shards of a completed split are told again what they have forgotten.
    ToldAgain,
    /// Finish begins where both shards say what they were told.
    ToldBeforeFinish,
    /// Changes that no window has taken stop a finish.
    StrayStopsFinish,
    /// Each row is shown to be on the target before it goes.
    RowsProven,
    /// The source notes that its rows go, before the first of them.
    PurgingNoted,
    /// The redirect is there before the triggers of the split go.
    RedirectFirst,
    /// A rollback leaves the target's guard until its rows are gone.
    GuardOutlivesRows,
    /// A rollback takes both shards over before it believes what they say.
    RollbackTakesFirst,
    /// A rollback that finds a decision leaves it to be adopted.
    RollbackAdopts,
    /// A cutover that another worker has left is set back.
    LeftCutoverReverted,

    /// Reverse: capture begins in the commit that opens the target.
    CaptureFromOpening,
    /// Reverse: from its opening on, writers of the target take the barrier.
    BarrierFromOpening,
    /// Reverse: the source stays shut for clients while windows come back.
    SourceStaysShut,
    /// Reverse: opening the old source ends what its old side refuses.
    OldSideReleased,
    /// Reverse: nothing begins before the source is moved and the master knows it.
    BegunAfterMoved,
    /// Reverse: once finish has begun there is no reverse split; both are asked for in one row.
    FinishEndsTheWayBack,
    /// Reverse: the decision ends what is to be told again of the way there.
    WatchEndsWithDecision,
    /// Reverse: while windows come back, a shard that has forgotten the way there is told again.
    WatchedUntilReversed,
    /// Reverse: where the old source has forgotten its fence, the reverse split is copied from nothing.
    CopiedAgainAfterRetelling,
    /// Reverse: an old source that has forgotten the reverse split alone gets its side of it again.
    WayBackInstalledAgain,
    /// Reverse: a master that has lost all of a reverse split finds its decision on the shards.
    WayBackLookedFor,
    /// Reverse: the commit that notes that rows go ends what the old source holds of the reverse split.
    PurgingEndsTheWayBack,
    /// Reverse: one worker at a time does what is to be done for both ways, the watch, too.
    OneWorkerForBoth,
    /// Reverse: finish removes the reverse split from the target before anything can refuse it.
    FinishTakesTheWayBackAway,
    /// Reverse: its steps are counted from none, whenever its progress begins.
    StepsFromNone,
    /// Reverse: changes that the old source took without its fence stop what would delete them.
    StrayStopsTheWayBack
}
