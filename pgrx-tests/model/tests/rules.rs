//! One run for each rule: without the rule the check finds a path to a forbidden state. If other rules make
//! it unnecessary here, the check finds none, and docs/internals/model-rules.md says why.

use shardmaster_model::forms::{BOTH, PLAIN, SET_BACK, SET_BACK_ONE, WAY_BACK, WAY_BACK_SET_BACK};
use shardmaster_model::rules::Rule;
use shardmaster_model::state::Cause;
use shardmaster_model::{Act, Bounds, Split, liveness};
use stateright::{Checker, HasDiscoveries, Model};

/// One crash, one writer.
const CRASH: Bounds = Bounds { writers: 1, old_snapshots: false, faults: 1, ..PLAIN };

/// A server is set back, with two writers to one row.
const SET_BACK_TWO: Bounds = Bounds { writers: 2, ..SET_BACK };

/// A server is set back, with two writers to one row, and finish is called.
const FINISHED: Bounds = Bounds { finishes: true, ..SET_BACK_TWO };

/// A server is set back, and nothing but a cutover is called.
const UNFINISHED: Bounds = Bounds { rolls_back: false, finishes: false, ..SET_BACK_ONE };

/// A second attempt, and a server that is set back.
const TWICE: Bounds = Bounds { calls: 2, ..UNFINISHED };

/// A second attempt, a crash, and a source that is set back.
const SOURCE_AGAIN: Bounds = Bounds {
    calls: 2,
    causes: &[Cause::Disk],
    shards_set_back: [true, false],
    master_set_back: false,
    ..BOTH
};

/// One attempt with two writers, a crash, and a source that is set back.
const SOURCE_ONCE: Bounds = Bounds { writers: 2, calls: 1, ..SOURCE_AGAIN };

/// Two servers are set back, one after the other.
const SET_BACK_TWICE: Bounds = Bounds { setbacks: 2, rolls_back: false, ..SET_BACK_ONE };

/// A server is set back in a reverse split, and finish is not called.
const NOT_FINISHED: Bounds = Bounds { finishes: false, ..WAY_BACK_SET_BACK };

const WAY_BACK_ONE: Bounds = Bounds { writers: 1, old_snapshots: false, faults: 0, ..WAY_BACK };

/// Returns the paths to states that break a property.
fn found(bounds: Bounds, without: Rule) -> Vec<(&'static str, Vec<Act>)> {
    let split = Split { bounds, without: Some(without) };
    let checker = split.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    checker.discoveries().into_iter().map(|(property, path)| (property, path.into_actions())).collect()
}

fn breaks(bounds: Bounds, without: Rule) {
    let found = found(bounds, without);
    let (property, way) = found.first().unwrap_or_else(|| panic!("nothing fails without {without:?}"));
    println!("without {without:?}: not so that {property}, in {} actions: {way:?}", way.len());
}

fn sticks(bounds: Bounds, without: Rule) {
    let walk = liveness::check(&Split { bounds, without: Some(without) });
    let way = walk.stuck.unwrap_or_else(|| panic!("somebody always takes writes without {without:?}"));
    println!("without {without:?}: nobody takes writes, in {} actions: {way:?}", way.len());
}

/// Checks that the rule is not needed, because other rules guarantee the same in this model.
fn is_spared(bounds: Bounds, without: Rule) {
    assert_eq!(found(bounds, without), [], "{without:?} is needed after all");
}

macro_rules! without {
    ($($name:ident: $check:ident($rule:ident, $bounds:expr);)+) => {
        $(#[test] fn $name() { $check($bounds, Rule::$rule); })+
    };
}

without! {
    the_fence_waits_for_writers: breaks(FenceWaitsForWriters, PLAIN);
    the_state_is_read_behind_the_lock: breaks(StateReadBehindLock, PLAIN);
    an_old_snapshot_is_refused: breaks(OldSnapshotRefused, PLAIN);
    the_fence_is_asked_whether_it_has_held: breaks(FenceAskedWhetherHeld, PLAIN);
    the_source_is_fenced: breaks(SourceFenced, PLAIN);
    the_last_window_is_read_behind_the_fence: breaks(LastWindowBehindFence, PLAIN);
    the_target_opens_after_the_decision: breaks(OpenAfterDecision, PLAIN);
    the_target_is_guarded: breaks(TargetGuarded, PLAIN);
    shards_know_a_generation: breaks(GenerationOnShards, SET_BACK_ONE);
    earlier_sessions_are_ended: breaks(SessionsEnded, SET_BACK_ONE);
    the_master_knows_a_generation: is_spared(GenerationOnMaster, SET_BACK_ONE);
    a_master_has_one_worker: breaks(OneWorker, BOTH);
    a_shard_belongs_to_one_master: breaks(MasterIdentity, CRASH);
    progress_is_committed_with_the_rows: breaks(ProgressWithRows, CRASH);
    a_window_is_a_difference_of_snapshots: breaks(WindowBySnapshots, PLAIN);
    only_what_was_seen_leaves_the_queue: breaks(OnlySeenConsumed, PLAIN);
    the_queue_gives_away_what_is_committed: is_spared(ConsumedAfterCommit, CRASH);
    a_step_is_durable_before_its_commit: is_spared(DurableBeforeCommit, SET_BACK_TWO);
    a_target_behind_is_noticed: breaks(TargetBehindNoticed, SET_BACK_ONE);
    a_source_behind_is_noticed: breaks(SourceBehindNoticed, SET_BACK_TWO);
    a_copy_that_begins_again_is_remembered: breaks(RestartRemembered, SOURCE_ONCE);
    another_timeline_begins_again: is_spared(TimelineCompared, SET_BACK_TWO);
    who_may_decide_is_noted: breaks(DecidingNoted, SET_BACK_ONE);
    runs_of_the_master_are_told_apart: breaks(RunCompared, SET_BACK_ONE);
    the_note_goes_when_the_source_opens: breaks(NoteGoesWithReopening, SOURCE_AGAIN);
    a_lost_decision_is_adopted: breaks(LostDecisionAdopted, SET_BACK_ONE);
    a_source_without_its_fence_is_fenced_again: breaks(FencedAgain, BOTH);
    a_fence_without_a_note_is_taken_again: breaks(FenceBorneOut, BOTH);
    a_target_is_whole_before_it_opens: breaks(WholeBeforeOpening, SET_BACK_ONE);
    counters_agree_before_a_target_opens: breaks(CountersAgree, SET_BACK_ONE);
    a_note_is_there_before_a_target_opens: is_spared(NoteBorneOut, TWICE);
    the_last_window_is_a_step: is_spared(LastStepCounts, TWICE);
    shards_are_told_again: sticks(ToldAgain, UNFINISHED);
    finish_begins_where_both_were_told: breaks(ToldBeforeFinish, FINISHED);
    stray_changes_stop_finish: breaks(StrayStopsFinish, FINISHED);
    rows_are_proven: breaks(RowsProven, SET_BACK_TWICE);
    it_is_noted_that_rows_go: breaks(PurgingNoted, SET_BACK_ONE);
    the_redirect_comes_first: breaks(RedirectFirst, PLAIN);
    the_guard_outlives_the_rows: breaks(GuardOutlivesRows, PLAIN);
    a_rollback_takes_both_sides_first: breaks(RollbackTakesFirst, SET_BACK_ONE);
    a_rollback_leaves_a_decision_to_be_adopted: sticks(RollbackAdopts, SET_BACK_ONE);
    a_cutover_that_was_left_is_reverted: is_spared(LeftCutoverReverted, CRASH);
    capture_begins_with_the_opening: breaks(CaptureFromOpening, WAY_BACK);
    writers_of_the_target_take_the_barrier: breaks(BarrierFromOpening, WAY_BACK);
    the_old_source_stays_shut: breaks(SourceStaysShut, WAY_BACK);
    the_old_side_is_released: sticks(OldSideReleased, WAY_BACK_ONE);
    the_way_back_begins_behind_the_move: is_spared(BegunAfterMoved, NOT_FINISHED);
    finish_ends_the_way_back: breaks(FinishEndsTheWayBack, WAY_BACK_SET_BACK);
    the_watch_ends_with_the_decision: breaks(WatchEndsWithDecision, NOT_FINISHED);
    the_way_there_is_watched_meanwhile: sticks(WatchedUntilReversed, NOT_FINISHED);
    a_source_that_forgot_is_copied_again: breaks(CopiedAgainAfterRetelling, NOT_FINISHED);
    stray_changes_stop_the_way_back: breaks(StrayStopsTheWayBack, NOT_FINISHED);
    steps_are_counted_from_none: breaks(StepsFromNone, NOT_FINISHED);
    the_way_back_is_installed_again: sticks(WayBackInstalledAgain, NOT_FINISHED);
    the_way_back_is_looked_for: sticks(WayBackLookedFor, NOT_FINISHED);
    purging_ends_the_way_back: is_spared(PurgingEndsTheWayBack, WAY_BACK_SET_BACK);
    both_ways_have_one_worker: is_spared(OneWorkerForBoth, WAY_BACK_SET_BACK);
    finish_takes_the_way_back_away: sticks(FinishTakesTheWayBackAway, WAY_BACK_SET_BACK);
}
