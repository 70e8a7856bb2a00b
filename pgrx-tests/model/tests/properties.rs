//! With all rules in force nothing is lost, no two places take writes, and some place takes them again.
//! `SHARDMASTER_SOAK=1` adds the large forms.

use shardmaster_model::forms::{
    AGAIN, BOTH, CRASHES, SET_BACK, SET_BACK_ENDED, SET_BACK_ONE, SOAK, THERE_AGAIN, WAY_BACK,
    WAY_BACK_SET_BACK,
};
use shardmaster_model::{Bounds, Split, liveness};
use stateright::{Checker, Model};
use std::time::Instant;

fn split(bounds: Bounds) -> Split {
    Split { bounds, without: None }
}

fn holds(bounds: Bounds) {
    let began = Instant::now();
    let checker = split(bounds).checker().threads(2).spawn_bfs().join();
    println!("{bounds:?}: {} states in {:.1?}", checker.unique_state_count(), began.elapsed());
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        panic!("{property}, after {:#?}", path.into_actions());
    }
}

fn serves(bounds: Bounds) {
    let began = Instant::now();
    let walk = liveness::check(&split(bounds));
    println!("{bounds:?}: {} states in {:.1?}, a way out of each", walk.states, began.elapsed());
    assert!(walk.stuck.is_none(), "nobody takes writes any more after {:#?}", walk.stuck);
}

#[test]
fn a_crash_anywhere_among_three_writers() {
    holds(CRASHES);
}

#[test]
fn a_crash_and_a_second_attempt() {
    holds(AGAIN);
}

#[test]
fn a_server_is_set_back() {
    holds(Bounds { writers: 2, ..SET_BACK });
}

#[test]
fn a_server_is_set_back_around_a_rollback_or_a_finish() {
    holds(SET_BACK_ENDED);
}

#[test]
fn a_server_is_set_back_and_something_crashes() {
    holds(BOTH);
}

#[test]
fn a_crash_on_the_way_back() {
    holds(Bounds { writers: 2, ..WAY_BACK });
}

#[test]
fn a_server_is_set_back_on_the_way_back() {
    holds(WAY_BACK_SET_BACK);
}

#[test]
fn there_and_back_and_there_again() {
    holds(THERE_AGAIN);
}

#[test]
fn somebody_takes_writes_after_a_crash() {
    serves(CRASHES);
}

#[test]
fn somebody_takes_writes_after_a_server_is_set_back() {
    serves(SET_BACK_ONE);
}

#[test]
fn somebody_takes_writes_after_both() {
    serves(BOTH);
}

#[test]
fn large_forms() {
    if std::env::var_os("SHARDMASTER_SOAK").is_none() {
        return;
    }
    for bounds in SOAK {
        holds(bounds);
    }
    serves(Bounds { finishes: true, rolls_back: true, ..BOTH });
}
